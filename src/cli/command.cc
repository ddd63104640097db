#include "cli/command.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string_view>

#include "base/printable.h"
#include "base/suggest.h"
#include "lab/terminal.h"

namespace thalweg::cli {
namespace {

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  }
  return names;
}

// Help whose headings, which begin a line and end with a colon, are bold.
class BoldHeadings : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::string plain = CLI::Formatter::make_help(app, std::move(name), mode);
    std::string bold;
    for (const auto line : std::views::split(plain, '\n')) {
      const std::string_view text(line.begin(), line.end());
      const bool heading = text.ends_with(':') && !text.starts_with(' ');
      bold += lab::painted(text, lab::Colour::kBold, heading) + '\n';
    }
    bold.pop_back();
    return bold;
  }
};

// The subcommand that was called, as far as its words were understood.
const CLI::App& called(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// The error for a word that `app` does not know.
Error unknown_word(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = subcommand_names(app);
  if (!names.empty() && !word.starts_with('-')) {
    return Error(fmt::format("{}: '{}' is not one of its subcommands; there are: {}{}",
                             path_of(app), word, fmt::join(names, ", "),
                             did_you_mean(word, names)));
  }
  if (word.starts_with('-')) {
    const std::string subcommands =
        names.empty() ? "" : fmt::format("; subcommands: {}", fmt::join(names, ", "));
    return Error(fmt::format("{}: '{}' is not one of its options{}{} ({} --help lists them)",
                             path_of(app), word.substr(0, word.find('=')), subcommands,
                             suggest_option(app, word), path_of(app)));
  }
  return Error(
      fmt::format("{}: '{}' is one word too many ({} --help)", path_of(app), word, path_of(app)));
}

}  // namespace

void exit_with_error(const Error& error) { throw Failure(error); }

void exit_unless_zero(int code) {
  if (code != 0) throw CLI::RuntimeError(code);
}

bool wants_json(int argc, char** argv) {
  const std::vector<std::string_view> words(argv, argv + argc);
  const auto is = [&](std::size_t i, std::string_view word) {
    return i < words.size() && words[i] == word;
  };
  const bool starts_others = is(1, "run") || (is(1, "testbed") && (is(2, "run") || is(2, "exec")));
  return !starts_others && std::ranges::find(words, std::string_view("--json")) != words.end();
}

int report(const Error& error, bool as_json) {
  std::string message = printable_lines(error.message());
  // Errors about the command line begin with its words.
  const bool named = message.starts_with("thalweg");
  const std::string shown = (named ? "" : "thalweg: ") + message;
  const std::size_t words = shown.find(": ") + 1;  // npos + 1 = 0: nothing is painted
  const bool colour = lab::shows_colour(STDERR_FILENO);
  std::cerr << lab::painted(shown.substr(0, words), lab::Colour::kRed, colour)
            << shown.substr(words) << '\n';
  if (as_json) {
    const nlohmann::ordered_json object{{"error", std::move(message)},
                                        {"exit_code", kExitBadInput}};
    std::cout << object.dump(2) << '\n' << std::flush;
  }
  return kExitBadInput;
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : path_of(*app.get_parent()) + " " + app.get_name();
}

std::string suggest_option(const CLI::App& app, const std::string& given) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  // Compared without the dashes, which all have.
  const std::string word = given.substr(0, given.find('='));
  const std::size_t begin = word.find_first_not_of('-');
  if (begin == std::string::npos) return "";
  const std::string bare = word.substr(begin);
  // One dash before a long name.
  if (std::ranges::find(names, bare) != names.end()) return "; did you mean '--" + bare + "'?";
  const auto meant = nearest(bare, names);
  return meant ? "; did you mean '--" + *meant + "'?" : "";
}

Error explain(const CLI::App& program, const CLI::ParseError& refused) {
  const CLI::App& app = called(program);
  for (const CLI::App* one = &app; one != nullptr; one = one->get_parent()) {
    const std::vector<std::string> rest = one->remaining();
    if (rest.empty() || one->get_prefix_command()) continue;
    // What follows a mistyped subcommand is its options. What follows a mistyped option is its
    // value.
    const auto option =
        std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with('-'); });
    const bool first = option == rest.end() || !subcommand_names(*one).empty();
    return unknown_word(*one, first ? rest.front() : *option);
  }
  if (refused.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) &&
      app.get_require_subcommand_min() > 0) {
    return Error(fmt::format("{}: a subcommand is required; there are: {}", path_of(app),
                             fmt::join(subcommand_names(app), ", ")));
  }
  return Error(fmt::format("{}: {} ({} --help)", path_of(app), refused.what(), path_of(app)));
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  return {[words = std::move(words), list](const std::string& given) -> std::string {
            if (std::ranges::find(words, given) != words.end()) return {};
            return fmt::format("'{}' is not allowed: write one of {}{}", given, list,
                               did_you_mean(given, words));
          },
          "{" + list + "}"};
}

void make_headings_bold(CLI::App& program) {
  if (lab::shows_colour(STDOUT_FILENO)) program.formatter(std::make_shared<BoldHeadings>());
}

void add_examples(CLI::App& app, const std::vector<std::string>& lines) {
  std::string text = lines.size() == 1 ? "Example:" : "Examples:";
  for (const std::string& line : lines) text += "\n  " + line;
  app.footer(text);
}

}  // namespace thalweg::cli
