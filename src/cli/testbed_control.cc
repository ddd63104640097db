#include <fmt/core.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/testbed/control.h"
#include "lab/testbed/place.h"

namespace thalweg::cli {
namespace {

struct TestbedControlArguments {
  std::string name;
  bool all = false;
  bool as_json = false;
  std::string what;  // of set: the word "link"
  std::string node;  // of set: a link; else a host or a switch
  std::vector<std::string> changes;
  lab::TestbedCapture capture;
  lab::TestbedStalls stalls;
};

Result<int> down(const TestbedControlArguments& arguments) {
  if (arguments.all) {
    THALWEG_TRY_STATUS(lab::take_down_all_testbeds());
    return 0;
  }
  THALWEG_TRY(const lab::TestbedPlace place, lab::TestbedPlace::of(arguments.name));
  THALWEG_TRY_STATUS(place.take_down());
  return 0;
}

Result<int> list(const TestbedControlArguments& arguments) {
  const nlohmann::json all = lab::list_testbeds();
  std::cout << (arguments.as_json ? all.dump(2) + "\n" : lab::testbeds_text(all));
  return 0;
}

Result<int> stats(const TestbedControlArguments& arguments) {
  THALWEG_TRY(const nlohmann::json answer, lab::testbed_stats(arguments.name));
  std::cout << (arguments.as_json ? answer.dump(2) + "\n" : lab::testbed_stats_text(answer));
  return 0;
}

Result<int> set(const TestbedControlArguments& arguments) {
  if (arguments.what != "link") {
    return Error(fmt::format("set: '{}' is unknown: thalweg testbed set link A-B rate=100M loss=1%",
                             arguments.what));
  }
  THALWEG_TRY_STATUS(lab::set_testbed_link(arguments.name, arguments.node, arguments.changes));
  return 0;
}

Result<int> capture(const TestbedControlArguments& arguments) {
  const lab::TestbedCapture& wanted = arguments.capture;
  const auto started = [&] {
    std::cout << fmt::format("capturing {} to {}\n", wanted.place, wanted.file) << std::flush;
  };
  THALWEG_TRY(const std::uint64_t frames, lab::capture_testbed(arguments.name, wanted, started));
  std::cout << fmt::format("{} frames\n", frames);
  return 0;
}

Result<int> stall(const TestbedControlArguments& arguments) {
  THALWEG_TRY_STATUS(lab::stall_testbed(arguments.name, arguments.stalls));
  return 0;
}

}  // namespace

void add_testbed_name(CLI::App& app, std::string& name) {
  name = "testbed";
  app.add_option("--name", name, "name of the testbed")->capture_default_str();
}

void add_testbed_control(CLI::App& testbed) {
  auto arguments = std::make_shared<TestbedControlArguments>();
  const auto add = [&](const char* word, const char* help, const char* example, auto body) {
    CLI::App* app = testbed.add_subcommand(word, help);
    add_testbed_name(*app, arguments->name);
    add_examples(*app, {fmt::format("thalweg testbed {}{}", word, example)});
    on_run(*app, [arguments, body] { return body(*arguments); });
    return app;
  };
  add("down", "end it: processes, namespaces, devices; also after a crash", " --all", down)
      ->add_flag("--all", arguments->all, "every testbed of this user");
  CLI::App* listed = add("list", "the testbeds there are", " --json", list);
  CLI::App* counted = add("stats", "what its links carry, queue and drop", "", stats);
  for (CLI::App* app : {listed, counted}) app->add_flag("--json", arguments->as_json, "as JSON");
  CLI::App* changed = add("set", "change a link: set link A-B rate=100M loss=1%",
                          " link host0-switch0 loss=1%", set);
  changed->add_option("what", arguments->what, "the word 'link'")->required();
  changed->add_option("link", arguments->node, "its ends' names, A-B; or all")->required();
  changed
      ->add_option("change", arguments->changes,
                   "rate=, delay=, loss=, burst=GOOD:BAD packets, up=yes or up=no")
      ->required();
  for (const auto& [word, help] :
       {std::pair{"restart", "a switch loses all that waits in it"},
        std::pair{"pause", "a host sends nothing"}, std::pair{"resume", "it sends again"}}) {
    add(word, help, word == std::string_view("restart") ? " switch0" : " host0",
        [word](const TestbedControlArguments& given) -> Result<int> {
          THALWEG_TRY_STATUS(lab::tell_testbed_node(given.name, word, given.node));
          return 0;
        })
        ->add_option("node", arguments->node, "its name")
        ->required();
  }
  CLI::App* stalled = add("stall", "at random moments a host sends nothing for a while",
                          " --every 500ms --for 20ms", stall);
  stalled->add_option("--every", arguments->stalls.every, "mean time between two, as in 500ms");
  stalled->add_option("--for", arguments->stalls.length, "how long, as in 20ms");
  stalled->add_option("--seed", arguments->stalls.seed, "seed for the moments and the hosts")
      ->capture_default_str();
  stalled->add_flag("--off", arguments->stalls.off, "no more of it");
  CLI::App* captured = add("capture", "frames at a host or on a link, to a pcap file",
                           " host0 host0.pcap --seconds 5", capture);
  captured->add_option("place", arguments->capture.place, "a host, or a link A-B")->required();
  captured->add_option("file", arguments->capture.file, "for tcpdump or Wireshark")->required();
  captured
      ->add_option("--seconds", arguments->capture.seconds, "end after so long (until interrupted)")
      ->check(CLI::Range(0.001, 1e6));
  captured->add_option("--frames", arguments->capture.frames, "at most so many");
}

}  // namespace thalweg::cli
