#include "cli/manual.h"

#include <fmt/format.h>

#include <iostream>
#include <string>
#include <vector>

#include <thalweg/version.h>

#include "cli/command.h"

namespace thalweg {
namespace {

// Those that users see: a subcommand without a group is the program's own.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* one) { return !one->get_group().empty(); });
}

// "thalweg plan show"
std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : path_of(*app.get_parent()) + " " + app.get_name();
}

// Every word that may follow a subcommand's name: its subcommands, or its options' long names.
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

// Words that are neither options nor subcommands are left to the shell, as files.
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

// A line of text for roff: backslashes and minus signs mean themselves, and so does a dot that
// begins it.
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
    // They are the same everywhere.
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
  on_run(man, [&program]() -> Result<int> {
    std::cout << man_page(program);
    return 0;
  });
  CLI::App& completion = *program.add_subcommand(
      "completion", "completion for a shell: source <(thalweg completion bash)");
  auto& shell = *completion.add_option("shell", "bash or zsh")->required();
  shell.check(CLI::IsMember({"bash", "zsh"}));
  on_run(completion, [&program, &shell]() -> Result<int> {
    if (shell.as<std::string>() == "zsh") {
      std::cout
          << "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n";
    }
    std::cout << bash_completion(program);
    return 0;
  });
}

}  // namespace thalweg
