"""The paper's tables and its figure, run again: what each row trains, the runner, the tables and the plots."""
