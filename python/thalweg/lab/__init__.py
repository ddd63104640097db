"""Experiments, the demo, benchmarks, figures and their data. Nothing here is part of the API.

    demo, demo_page           what `make demo` runs, and the page that it writes
    e2e, e2e_rank             `thalweg reproduce e2e`, and its ranks
    tune_bound                `thalweg tune bound`
    train_strategies          training that belongs to simulated experiments (`thalweg reproduce`)
    record_models             records the layer tables of models/; transformer_models has the models
    tasks, data/              small trainings that the others use, and the digits they learn from
    testbed, namespaces       networks on this machine: a testbed of switches, or hosts on a bridge
    bench/                    benchmarks
    figures/                  draws figures from plain data
"""
