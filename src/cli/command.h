// What the subcommands share: exit codes, and how an error ends the program.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::cli {

// 0: done. 1: the answer is no (a plan is wrong). 2: the input is bad.
inline constexpr int kExitNo = 1;
inline constexpr int kExitBadInput = 2;

// Makes `body` the action of the subcommand. It returns a Result<int> with the exit code. An error
// is printed and ends the program with kExitBadInput.
template <class Body>
void on_run(CLI::App& app, Body body);
// These end the program through an exception that main() catches. An error is a Failure.
struct Failure : CLI::RuntimeError {
  explicit Failure(thalweg::Error why) : CLI::RuntimeError(kExitBadInput), error(std::move(why)) {}
  thalweg::Error error;
};
[[noreturn]] void exit_with_error(const Error& error);
void exit_unless_zero(int code);

// Whether the arguments ask for JSON. Those of a program that `run` starts do not count.
[[nodiscard]] bool wants_json(int argc, char** argv);
// Prints the error on stderr and, with `as_json`, as {"error": …, "exit_code": 2} on stdout, where
// the caller expects JSON. Returns kExitBadInput.
[[nodiscard]] int report(const Error& error, bool as_json);

// What is wrong with a command line that CLI11 refused. An unknown option or subcommand is named
// before anything that is missing, because the one is often the other, mistyped.
[[nodiscard]] Error explain(const CLI::App& program, const CLI::ParseError& refused);
// The words by which a subcommand is called, such as "thalweg plan show".
[[nodiscard]] std::string path_of(const CLI::App& app);
// "; did you mean '--topology'?" for an option that the subcommand does not have.
[[nodiscard]] std::string suggest_option(const CLI::App& app, const std::string& given);
// A validator that allows these words, and suggests one of them for another.
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> words);
// Makes the headings of all help bold where standard output shows colour. To be called before
// subcommands are added.
void make_headings_bold(CLI::App& program);
// Adds examples to the end of the subcommand's help.
void add_examples(CLI::App& app, const std::vector<std::string>& lines);

template <class Body>
void on_run(CLI::App& app, Body body) {
  app.callback([body = std::move(body)] {
    const Result<int> result = body();
    if (!result.ok()) exit_with_error(result.error());
    exit_unless_zero(*result);
  });
}

}  // namespace thalweg::cli
