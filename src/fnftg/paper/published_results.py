"""The paper's published figures, with the table that each comes from. Rows are named by system and BERT."""

from __future__ import annotations

WN18RR, FB15K237, WIKIDATA5M = "WN18RR_IND", "FB15k-237_IND", "Wikidata5M_IND"
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
IND, UNSEEN = "IND", "IND∖FIR"  # evaluations: all test triples, and those of relations that FIR removes from train

Figures = dict[str, float]  # metric: value
Results = dict[str, dict[str, Figures]]  # dataset: row: figures


def _figures(*values: float) -> Figures:
    return dict(zip(METRICS, values, strict=False))


# Table "WN18RR_IND and FB15k-237_IND test set results" (tab:inductive). The paper quotes DKRL, BOW and BLP from BLP,
# StAR and StATIK from StATIK.

INDUCTIVE: Results = {
    WN18RR: {
        "dkrl-base": _figures(0.139, 0.048, 0.169, 0.320),
        "bow-base": _figures(0.180, 0.045, 0.244, 0.450),
        "blp-base": _figures(0.285, 0.135, 0.361, 0.580),
        "fnf-t-base": _figures(0.373, 0.238, 0.442, 0.647),
        "fnf-t-medium": _figures(0.342, 0.213, 0.405, 0.603),
        "fnf-t-small": _figures(0.320, 0.197, 0.379, 0.572),
        "fnf-t-mini": _figures(0.268, 0.156, 0.318, 0.498),
        "fnf-t-tiny": _figures(0.193, 0.098, 0.230, 0.385),
        "star-base": _figures(0.321, 0.192, 0.381, 0.576),
        "statik-base": _figures(0.516, 0.425, 0.558, 0.690),
        "fnf-tg-base": _figures(0.732, 0.652, 0.785, 0.875),
        "fnf-tg-medium": _figures(0.737, 0.661, 0.789, 0.873),
        "fnf-tg-small": _figures(0.727, 0.648, 0.781, 0.867),
        "fnf-tg-mini": _figures(0.713, 0.632, 0.768, 0.857),
        "fnf-tg-tiny": _figures(0.638, 0.543, 0.700, 0.808),
    },
    FB15K237: {
        "dkrl-base": _figures(0.144, 0.084, 0.151, 0.263),
        "bow-base": _figures(0.173, 0.103, 0.184, 0.316),
        "blp-base": _figures(0.195, 0.113, 0.213, 0.363),
        "fnf-t-base": _figures(0.266, 0.174, 0.297, 0.453),
        "fnf-t-medium": _figures(0.253, 0.164, 0.281, 0.431),
        "fnf-t-small": _figures(0.239, 0.152, 0.265, 0.411),
        "fnf-t-mini": _figures(0.204, 0.128, 0.223, 0.354),
        "fnf-t-tiny": _figures(0.164, 0.100, 0.176, 0.289),
        "star-base": _figures(0.163, 0.092, 0.176, 0.309),
        "statik-base": _figures(0.224, 0.143, 0.248, 0.381),
        "fnf-tg-base": _figures(0.316, 0.214, 0.350, 0.524),
        "fnf-tg-medium": _figures(0.314, 0.214, 0.353, 0.515),
        "fnf-tg-small": _figures(0.316, 0.216, 0.354, 0.518),
        "fnf-tg-mini": _figures(0.302, 0.204, 0.337, 0.502),
        "fnf-tg-tiny": _figures(0.288, 0.195, 0.318, 0.475),
    },
}

# Table "Wikidata5M_IND test set results" (tab:wikidata). The paper quotes KEPLER from KEPLER, BLP from BLP, and StATIK
# from StATIK.

WIKIDATA: Results = {
    WIKIDATA5M: {
        "kepler-base": _figures(0.402, 0.222, 0.514, 0.730),
        "blp-base": _figures(0.478, 0.241, 0.660, 0.871),
        "fnf-t-base": _figures(0.597, 0.427, 0.722, 0.896),
        "fnf-t-medium": _figures(0.588, 0.418, 0.712, 0.890),
        "fnf-t-small": _figures(0.588, 0.417, 0.714, 0.889),
        "fnf-t-mini": _figures(0.562, 0.391, 0.683, 0.870),
        "fnf-t-tiny": _figures(0.526, 0.348, 0.649, 0.849),
        "statik-base": _figures(0.770, 0.765, 0.771, 0.779),
        "fnf-tg-base": _figures(0.799, 0.741, 0.833, 0.911),
        "fnf-tg-medium": _figures(0.785, 0.727, 0.817, 0.900),
        "fnf-tg-small": _figures(0.781, 0.721, 0.816, 0.898),
        "fnf-tg-mini": _figures(0.779, 0.719, 0.814, 0.894),
        "fnf-tg-tiny": _figures(0.761, 0.697, 0.799, 0.883),
    },
}

# Table of the controlled experimental setup (tab:controlled_experimental_setup): MRR; each row adds to the one above.
# "quoted" is BLP as published, "blp" is the paper's reimplementation.

CONTROLLED: Results = {
    WN18RR: {
        "quoted-base": _figures(0.285),
        "blp-base": _figures(0.280),
        "inductive-relations-base": _figures(0.281),
        "batch-tying-base": _figures(0.300),
        "embedding-size-base": _figures(0.339),
        "batch-size-base": _figures(0.366),
        "sampling-base": _figures(0.373),
        "fnf-t-base": _figures(0.373),
    },
    FB15K237: {
        "quoted-base": _figures(0.195),
        "blp-base": _figures(0.205),
        "inductive-relations-base": _figures(0.219),
        "batch-tying-base": _figures(0.221),
        "embedding-size-base": _figures(0.254),
        "batch-size-base": _figures(0.260),
        "sampling-base": _figures(0.266),
        "fnf-t-base": _figures(0.266),
    },
}

# Table of the ablation (tab:ablation): MRR; each row removes more than the one above. The best BERT of each dataset.

ABLATION: Results = {
    WN18RR: {
        "fnf-tg-medium": _figures(0.737),
        "relations-medium": _figures(0.733),
        "segments-medium": _figures(0.677),
        "ego-graphs-medium": _figures(0.480),
        "conditioning-medium": _figures(0.342),
    },
    FB15K237: {
        "fnf-tg-small": _figures(0.316),
        "relations-small": _figures(0.306),
        "segments-small": _figures(0.298),
        "ego-graphs-small": _figures(0.251),
        "conditioning-small": _figures(0.239),
    },
}

# Figure of accuracy against training time (fig:latency). The paper prints no numbers for its points; the accuracies are
# those of the tables above.

LATENCY: Results = {
    dataset: {row: {"mrr": figures["mrr"]} for row, figures in rows.items() if row.startswith("fnf-tg-")}
    for dataset, rows in INDUCTIVE.items()
}

# Table "Fully inductive link prediction results" (tab:fully_inductive), by evaluation. Rows are named by system,
# training set and BERT.

FULLY_INDUCTIVE: dict[str, Results] = {
    IND: {
        WN18RR: {
            "fnf-t-ind-tiny": _figures(0.193, 0.098, 0.230, 0.385),
            "fnf-t-fir-tiny": _figures(0.169, 0.080, 0.198, 0.346),
            "fnf-tg-ind-tiny": _figures(0.638, 0.543, 0.700, 0.808),
            "fnf-tg-fir-tiny": _figures(0.573, 0.480, 0.629, 0.738),
        },
        FB15K237: {
            "fnf-t-ind-tiny": _figures(0.164, 0.100, 0.176, 0.289),
            "fnf-t-fir-tiny": _figures(0.143, 0.087, 0.153, 0.253),
            "fnf-tg-ind-tiny": _figures(0.288, 0.195, 0.318, 0.475),
            "fnf-tg-fir-tiny": _figures(0.249, 0.165, 0.274, 0.418),
        },
        WIKIDATA5M: {
            "fnf-t-ind-tiny": _figures(0.526, 0.348, 0.649, 0.849),
            "fnf-t-fir-tiny": _figures(0.478, 0.306, 0.591, 0.793),
            "fnf-tg-ind-tiny": _figures(0.761, 0.697, 0.799, 0.883),
            "fnf-tg-fir-tiny": _figures(0.711, 0.644, 0.749, 0.837),
        },
    },
    UNSEEN: {
        WN18RR: {
            "fnf-t-ind-tiny": _figures(0.307, 0.210, 0.353, 0.495),
            "fnf-t-fir-tiny": _figures(0.064, 0.012, 0.082, 0.159),
            "fnf-tg-ind-tiny": _figures(0.585, 0.483, 0.652, 0.769),
            "fnf-tg-fir-tiny": _figures(0.108, 0.028, 0.147, 0.242),
        },
        FB15K237: {
            "fnf-t-ind-tiny": _figures(0.171, 0.102, 0.185, 0.308),
            "fnf-t-fir-tiny": _figures(0.024, 0.007, 0.026, 0.052),
            "fnf-tg-ind-tiny": _figures(0.282, 0.176, 0.311, 0.514),
            "fnf-tg-fir-tiny": _figures(0.050, 0.023, 0.051, 0.099),
        },
        WIKIDATA5M: {
            "fnf-t-ind-tiny": _figures(0.594, 0.451, 0.697, 0.849),
            "fnf-t-fir-tiny": _figures(0.219, 0.054, 0.334, 0.499),
            "fnf-tg-ind-tiny": _figures(0.726, 0.646, 0.781, 0.867),
            "fnf-tg-fir-tiny": _figures(0.401, 0.287, 0.480, 0.589),
        },
    },
}
RANDOM = {WN18RR: 0.0003, FB15K237: 0.0007, WIKIDATA5M: 0.0013}  # MRR of a random ranking: the last row of that table

# Table of dataset statistics (tab:datasets, appendix): relations, then for each split entities, triples, and mean and
# standard deviation of the ego-graph size.

DATASETS: dict[str, Figures] = {
    dataset: dict(
        zip(
            (
                "relations",
                *(
                    f"{split}.{column}"
                    for split in ("train", "val", "test")
                    for column in ("entities", "triples", "ego_graph_mean", "ego_graph_std")
                ),
            ),
            values,
            strict=True,
        )
    )
    for dataset, values in {
        WN18RR: (11, 32_755, 69_585, 2.12, 3.15, 4_094, 11_381, 1.17, 1.33, 4_456, 12_037, 1.18, 1.35),
        FB15K237: (237, 11_633, 215_082, 18.49, 28.91, 1_454, 42_164, 4.70, 10.63, 2_416, 52_870, 4.97, 12.29),
        WIKIDATA5M: (822, 4_579_609, 20_496_514, 4.48, 4.41, 7_374, 6_699, 0.91, 0.78, 7_475, 6_894, 0.92, 0.81),
    }.items()
}
