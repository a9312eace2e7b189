"""Reproduction of the paper's tables and figure: experiments, runner, tables and plots."""
