#include "cli/command.h"
#include "cli/commands.h"

#include <fmt/core.h>

#include <iostream>
#include <string>
#include <vector>

#include <thalweg/version.h>

namespace thalweg::cli {
namespace {

// The subcommands that users see. One without a group is only for the program itself.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* one) { return !one->get_group().empty(); });
}

// Every word that may follow a subcommand's name: its subcommands, and the long names of its
// options.
std::string words_after(const CLI::App& app) {
  std::string words;
  for (const CLI::App* one : subcommands_of(app)) words += one->get_name() + " ";
  for (const CLI::Option* one : options_of(app)) {
    for (const std::string& name : one->get_lnames()) words += "--" + name + " ";
  }
  if (!words.empty()) words.pop_back();
  return words;
}

void add_cases(const CLI::App& app, std::string& script) {
  script += fmt::format("    '{}') words='{}' ;;\n", path_of(app), words_after(app));
  for (const CLI::App* one : subcommands_of(app)) add_cases(*one, script);
}

// A script that completes options and subcommands. The shell completes other words, as files.
std::string bash_completion(const CLI::App& program) {
  std::string script =
      "_thalweg() {\n"
      "  local path=thalweg word words=\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    [ \"$word\" = -- ] && return\n"
      "    case \" $(_thalweg_words \"$path\") \" in *\" $word \"*) [[ $word = -* ]] || "
      "path=\"$path "
      "$word\" ;; esac\n"
      "  done\n"
      "  words=$(_thalweg_words \"$path\")\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
      "}\n"
      "_thalweg_words() {\n"
      "  local words=\n"
      "  case \"$1\" in\n";
  add_cases(program, script);
  return script +
         "  esac\n"
         "  echo \"$words\"\n"
         "}\n"
         "complete -o default -F _thalweg thalweg\n";
}

// Every subcommand that has its own lines, by its words.
void add_fish_paths(const CLI::App& app, std::string& script) {
  for (const CLI::App* one : subcommands_of(app)) {
    script += fmt::format(" '{}'", path_of(*one));
    add_fish_paths(*one, script);
  }
}

// The text in single quotes, as fish reads it, on one line.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

// The lines that complete what may follow a subcommand: where `condition` holds, every subcommand
// and option with its help.
void add_fish_lines(const CLI::App& app, const std::string& condition, std::string& script) {
  const std::string begin = fmt::format("complete -c thalweg -n {} ", fish_quoted(condition));
  for (const CLI::App* one : subcommands_of(app)) {
    script += fmt::format("{}-f -a {} -d {}\n", begin, one->get_name(),
                          fish_quoted(one->get_description()));
  }
  for (const CLI::Option* one : options_of(app)) {
    std::string names;
    for (const std::string& name : one->get_snames()) names += "-s " + name + " ";
    for (const std::string& name : one->get_lnames()) names += "-l " + name + " ";
    // An option that takes a value (-r) is completed with files, the shell's default.
    if (names.empty()) continue;
    script +=
        fmt::format("{}{}{}-d {}\n", begin, names, one->get_items_expected_max() > 0 ? "-r " : "",
                    fish_quoted(one->get_description()));
  }
  for (const CLI::App* one : subcommands_of(app)) {
    add_fish_lines(*one, fmt::format("__thalweg_at {}", path_of(*one)), script);
  }
}

// The same for fish. Words after "--" belong to another program.
std::string fish_completion(const CLI::App& program) {
  std::string script =
      "# Whether the command line so far calls this subcommand: its words that are no options.\n"
      "function __thalweg_at\n"
      "  set -l words (commandline -opc)\n"
      "  contains -- -- $words; and return 1\n"
      "  set -l own (count $argv)\n"
      "  test (count $words) -ge $own; or return 1\n"
      "  test \"$words[1..$own]\" = \"$argv\"; or return 1\n"
      "  # A subcommand that follows has its own lines.\n"
      "  set -l next (math $own + 1)\n"
      "  not contains -- \"$argv $words[$next]\" $__thalweg_paths\n"
      "end\n";
  script += "set -g __thalweg_paths";
  add_fish_paths(program, script);
  script += '\n';
  add_fish_lines(program, "__thalweg_at thalweg", script);
  return script;
}

// The text as a line of roff, in which backslashes, minus signs and a leading dot or quote stand
// for themselves.
std::string roff(const std::string& text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

void add_section(const CLI::App& app, std::string& page) {
  page += fmt::format(".SS {}\n{}\n", roff(path_of(app)), roff(app.get_description()));
  for (const CLI::Option* one : options_of(app)) {
    // Every subcommand has these.
    if (one == app.get_help_ptr() || one == app.get_help_all_ptr()) continue;
    page += fmt::format(".TP\n.B {}\n{}\n", roff(one->get_name(one->get_positional(), true)),
                        roff(one->get_description()));
  }
  for (const CLI::App* one : subcommands_of(app)) add_section(*one, page);
}

std::string man_page(const CLI::App& program) {
  std::string page = fmt::format(
      ".TH THALWEG 1 \"\" \"thalweg {}\"\n.SH NAME\nthalweg \\- {}\n.SH SYNOPSIS\n.B thalweg\n"
      ".I subcommand\n[options]\n.PP\nEvery subcommand has \\-\\-help.\n.SH SUBCOMMANDS\n",
      kVersion, roff(program.get_description()));
  for (const CLI::App* one : subcommands_of(program)) add_section(*one, page);
  return page +
         ".SH EXIT STATUS\n0: done. 1: the answer is no. 2: the input is bad.\n"
         ".B thalweg run\nends as the first rank that fails.\n";
}

}  // namespace

void add_manual(CLI::App& program) {
  CLI::App& man = *program.add_subcommand("man", "a page for man(1): thalweg man > thalweg.1");
  add_examples(man, {"thalweg man > thalweg.1 && man ./thalweg.1"});
  on_run(man, [&program]() -> Result<int> {
    std::cout << man_page(program);
    return 0;
  });
  CLI::App& completion = *program.add_subcommand(
      "completion", "completion for a shell: source <(thalweg completion bash)");
  auto& shell = *completion.add_option("shell", "bash, zsh or fish")->required();
  shell.check(one_of({"bash", "zsh", "fish"}));
  add_examples(completion, {"source <(thalweg completion bash)",
                            "thalweg completion fish > ~/.config/fish/completions/thalweg.fish"});
  on_run(completion, [&program, &shell]() -> Result<int> {
    if (shell.as<std::string>() == "fish") {
      std::cout << fish_completion(program);
      return 0;
    }
    if (shell.as<std::string>() == "zsh") {
      std::cout
          << "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n";
    }
    std::cout << bash_completion(program);
    return 0;
  });
}

}  // namespace thalweg::cli
