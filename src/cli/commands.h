// The subcommands of the `thalweg` program. Each has one function, in the file of its name, which
// registers the subcommand below the command that it is given.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace thalweg::cli {

// thalweg plan: collectives as plans
void add_plan_show(CLI::App& plan);
void add_plan_compare(CLI::App& plan);
void add_plan_best(CLI::App& plan);
void add_plan_verify(CLI::App& plan);
void add_plan_schemes(CLI::App& plan);
void add_plan_mixing(CLI::App& plan);

// thalweg sim: the packet-level simulator
void add_sim_run(CLI::App& sim);
void add_reproduce(CLI::App& program);

// thalweg bench: measurements, with a peer and the limit beside them
void add_bench_allreduce(CLI::App& bench);
// One rank of `bench allreduce`, which the benchmark starts itself; hidden from users.
void add_bench_allreduce_rank(CLI::App& bench);
void add_bench_gpu(CLI::App& bench);
void add_bench_kernels(CLI::App& bench);
void add_bench_sim(CLI::App& bench);
void add_bench_step(CLI::App& bench);
void add_bench_switch(CLI::App& bench);
void add_bench_transport(CLI::App& bench);

// Processes of a job, and commands that look at them
void add_switch(CLI::App& program);
void add_job(CLI::App& program);
void add_ps(CLI::App& program);
void add_probe(CLI::App& program);
void add_top(CLI::App& program);

// Returns what follows "--" in the arguments of `run`, `testbed run` and `testbed exec`, and cuts
// it off `argv`, because CLI11 would take it for arguments of this program.
std::vector<std::string> take_rank_command(int& argc, char** argv);
// `command`: what take_rank_command() returned. If it is empty, the command begins with the first
// word that is no option.
void add_run(CLI::App& program, const std::vector<std::string>& command);

// thalweg testbed: a network on this machine, for any program (docs/testbed.md)
void add_testbed_up(CLI::App& testbed);
// Adds down, list, stats, set, restart, pause, resume, stall and capture.
void add_testbed_control(CLI::App& testbed);
// Adds run and exec.
void add_testbed_run(CLI::App& testbed, const std::vector<std::string>& command);
// Adds the option --name, which all of them have.
void add_testbed_name(CLI::App& app, std::string& name);

// thalweg tune: settings from a model and a network
void add_tune_bound(CLI::App& tune);
void add_tune_thresholds(CLI::App& tune);

// thalweg trace: recordings of real connections, timelines of real jobs
void add_trace_chakra(CLI::App& trace);
void add_trace_merge(CLI::App& trace);
void add_trace_replay(CLI::App& trace);

// `thalweg man` and `thalweg completion`. They describe what `program` has when they run.
void add_manual(CLI::App& program);

}  // namespace thalweg::cli
