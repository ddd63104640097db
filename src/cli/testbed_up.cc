#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/pipe.h"
#include "cli/testbed.h"
#include "cli/testbed/aggregators.h"
#include "cli/testbed/capacity.h"
#include "cli/testbed/frame.h"
#include "cli/testbed/switchboard.h"
#include "cli/testbed_aggregator.h"
#include "cli/testbed_hosts.h"
#include "cli/testbed_place.h"
#include "net/system.h"
#include "sim/scenario.h"
#include "topology/with_links.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string topology;
  std::string name;
  double scale = 1;
  std::size_t mtu = 1500;
  std::vector<std::string> settings;
  std::vector<std::string> aggregate;
  bool foreground = false;
};

// Rates by that factor and delays by its inverse: the same network, in slow motion.
Result<Topology> scaled(const Topology& topology, double scale) {
  if (!(scale > 0 && scale <= 1)) {
    return Error(fmt::format("--scale: {}: must be above 0 and at most 1", scale));
  }
  for (const Link& link : topology.links()) {
    const double slower = link.spec.delay.s() / scale;
    if (static_cast<double>(link.spec.rate.bps()) * scale < 1 || slower > kMaxDelay.s()) {
      return Error(fmt::format("--scale: {}: a link of {} with a delay of {} is out of range",
                               scale, to_string(link.spec.rate), to_string(link.spec.delay)));
    }
  }
  return with_links(topology, [&](LinkId link) {
    LinkSpec spec = topology.links()[link.index()].spec;
    spec.rate =
        Bandwidth::bits_per_second(std::llround(static_cast<double>(spec.rate.bps()) * scale));
    spec.delay = Duration::seconds(spec.delay.s() / scale);
    return spec;
  });
}

// KEY=VALUE as in the section 'network' of a scenario; queues by priority unless it says otherwise.
Result<NetworkOptions> network_options(const std::vector<std::string>& settings) {
  std::string yaml;
  bool disciplined = false;
  for (const std::string& text : settings) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error(fmt::format("--set: '{}': write KEY=VALUE, as in mark_above=30KB", text));
    }
    disciplined = disciplined || text.starts_with("discipline=");
    yaml += text.substr(0, equals) + ": " + text.substr(equals + 1) + "\n";
  }
  if (!disciplined) yaml += "discipline: strict-priority\n";
  THALWEG_TRY(const NetworkOptions options, network_options_from_yaml(yaml, "--set"));
  if (options.queues.discipline == QueueOptions::Discipline::kPFabric ||
      options.balancing == LoadBalancing::kLabel) {
    return Error(
        "--set: pfabric and label need what no frame says: the discipline may be fifo or "
        "strict-priority, the balancing flow-hash or per-packet");
  }
  return options;
}

Status check_capacity(const Topology& topology, const TestbedSettings& settings) {
  std::vector<Bandwidth> rates;
  for (const Link& link : topology.links()) rates.push_back(link.spec.rate);
  const double needed = frames_needed(topology, rates, settings.mtu);
  if (needed <= settings.frames_per_second) return ok_status();
  return Error(fmt::format(
      "the hosts' links can carry {:.0f} frames of {} bytes a second, and this machine {:.0f}: "
      "give --scale {:.1g} or less",
      needed, settings.mtu, settings.frames_per_second,
      settings.scale * settings.frames_per_second / needed / 2));
}

// Frames must not wait for other programs. Where that is not allowed they sometimes do, which the
// statistics say.
void be_urgent() {
  const sched_param priority{.sched_priority = 1};
  sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &priority);
  prctl(PR_SET_TIMERSLACK, 1UL);
}

// The signals that end a program are not heard from here on; which they are.
sigset_t block_ends() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

class Testbed {
 public:
  Testbed(const TestbedPlace& place, const Topology& topology, const TestbedSettings& settings)
      : place_(place), topology_(topology), settings_(settings) {}

  // Sets all up, says so by `ready`, and runs until it is told to end, or not at all if `ready`
  // answers that nobody waits for it.
  template <class Ready>
  Status run(const Fd& lock, Ready ready) {
    Status status = prepare(lock);
    if (status.ok() && ready()) {
      be_urgent();
      board_->run();
    }
    board_.reset();
    const Status removed = place_.remove_rest();
    return status.ok() ? removed : status;
  }
  [[nodiscard]] const TestbedSettings& settings() const { return settings_; }

 private:
  Status prepare(const Fd& lock) {
    // Who waits to hear that it is up may have ended: that must not end us before all is removed.
    std::signal(SIGPIPE, SIG_IGN);
    const sigset_t ends = block_ends();
    Fd signals(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.valid()) return system_error("cannot make a signalfd", errno);
    const std::string number = fmt::format("{}\n", getpid());
    if (write(lock.get(), number.data(), number.size()) < 0) {
      return system_error("cannot write the lock", errno);
    }
    THALWEG_TRY_STATUS(become_able_to_make_networks());
    THALWEG_TRY(std::vector<TestbedHost> hosts, make_testbed_hosts(place_, topology_, settings_));
    THALWEG_TRY_STATUS(check_capacity(topology_, settings_));
    THALWEG_TRY(Fd listener, place_.listen());
    THALWEG_TRY(std::vector<std::unique_ptr<Restartable>> aggregators, start_aggregators(hosts));
    THALWEG_TRY(board_,
                Switchboard::make(topology_, settings_, std::move(hosts), std::move(listener),
                                  std::move(signals), std::move(aggregators)));
    return ok_status();
  }

  Result<std::vector<std::unique_ptr<Restartable>>> start_aggregators(
      const std::vector<TestbedHost>& hosts) const {
    std::vector<std::unique_ptr<Restartable>> started;
    const std::size_t first = hosts.size() - settings_.aggregate.size();
    for (std::size_t i = 0; i < settings_.aggregate.size(); ++i) {
      THALWEG_TRY(auto one,
                  AggregatorProcess::start(settings_.aggregate[i],
                                           address_of(Rank(static_cast<std::int32_t>(first + i))),
                                           hosts[first + i].space.get(), place_));
      started.push_back(std::move(one));
    }
    return started;
  }

  const TestbedPlace& place_;
  const Topology& topology_;
  TestbedSettings settings_;
  std::unique_ptr<Switchboard> board_;
};

void print_up(const TestbedPlace& place, const Topology& topology, const std::string& capacity) {
  // The hosts of aggregators are among them: they have addresses too.
  std::cout << fmt::format("testbed '{}': {} hosts, {} links; this machine carries {} frames/s\n",
                           place.name(), topology.host_count(), topology.links().size(), capacity);
  std::vector<std::vector<std::string>> rows{{"host", "name", "address", "namespace"}};
  for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
    rows.push_back({std::to_string(rank.value()), topology.node(topology.host(rank)).name,
                    address_of(rank),
                    place.is_of_root() ? fmt::format("{}-h{}", place.name(), rank.value()) : "-"});
  }
  std::cout << format_table(rows) << std::flush;
}

// In a process of its own, whose terminal and folder are nobody's. It says by the pipe "+" and the
// frames it carries, or "-" and what is wrong; and runs when it was answered: one who is ended
// before has no testbed, one who has answered is not ended any more but by success.
Result<int> run_in_background(const TestbedPlace& place, const Topology& topology,
                              const TestbedSettings& settings) {
  THALWEG_TRY(Fd lock, place.occupy());
  THALWEG_TRY(Pipe pipe, Pipe::make());
  THALWEG_TRY(Pipe answer, Pipe::make());
  const pid_t child = fork();
  if (child < 0) return system_error("cannot start the testbed's process", errno);
  if (child == 0) {
    pipe.read.reset();
    answer.write.reset();
    setsid();
    const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
    const Fd log(open(place.log().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    dup2(nothing.get(), STDIN_FILENO);
    dup2(log.get(), STDOUT_FILENO);
    dup2(log.get(), STDERR_FILENO);
    if (chdir("/") != 0) _exit(kExitBadInput);
    const auto say = [&](const std::string& text) {
      const auto size = static_cast<ssize_t>(text.size());
      const bool heard = write(pipe.write.get(), text.data(), text.size()) == size;
      pipe.write.reset();
      return heard;
    };
    Testbed testbed(place, topology, settings);
    const Status status = testbed.run(lock, [&] {
      return say(fmt::format("+{:.0f}", testbed.settings().frames_per_second)) &&
             !read_all(answer.read.get()).empty();
    });
    if (!status.ok() && pipe.write.valid()) say("-" + status.error().message());
    _exit(status.ok() ? 0 : kExitBadInput);
  }
  pipe.write.reset();
  answer.read.reset();
  lock.reset();
  const std::string said = read_all(pipe.read.get());
  if (said.starts_with('+')) {
    block_ends();
    std::signal(SIGPIPE, SIG_IGN);  // it may have ended since
    if (write(answer.write.get(), "+", 1) != 1) return system_error("the testbed has ended", errno);
    answer.write.reset();
    print_up(place, topology, said.substr(1));
    return 0;
  }
  waitpid(child, nullptr, 0);
  return Error(said.empty() ? "the testbed's process ended at once" : said.substr(1));
}

Result<int> up(const Arguments& arguments) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(arguments.name));
  THALWEG_TRY(const Topology read, load_topology(arguments.topology));
  if (read.host_count() < 2 || read.host_count() > kMaxTestbedHosts) {
    return Error(fmt::format("{}: {} hosts; a testbed has 2 to {}", arguments.topology,
                             read.host_count(), kMaxTestbedHosts));
  }
  THALWEG_TRY(const Topology links, scaled(read, arguments.scale));
  TestbedSettings settings{.name = arguments.name,
                           .folder = place.folder(),
                           .mtu = arguments.mtu,
                           .scale = arguments.scale,
                           .aggregate = arguments.aggregate};
  THALWEG_TRY(const Topology topology, with_aggregators(links, settings.aggregate));
  THALWEG_TRY(settings.network, network_options(arguments.settings));
  if (!arguments.foreground) return run_in_background(place, topology, settings);
  THALWEG_TRY(const Fd lock, place.occupy());
  Testbed testbed(place, topology, settings);
  THALWEG_TRY_STATUS(testbed.run(lock, [&] {
    print_up(place, topology, fmt::format("{:.0f}", testbed.settings().frames_per_second));
    return static_cast<bool>(std::cout);
  }));
  return 0;
}

}  // namespace

void add_testbed_up(CLI::App& testbed) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *testbed.add_subcommand("up", "make the hosts and the network between them");
  app.add_option("topology", arguments->topology, "a file or a shorthand")->required();
  add_testbed_name(app, arguments->name);
  app.add_option("--scale", arguments->scale,
                 "rates by this factor, delays by its inverse: the network in slow motion")
      ->capture_default_str();
  app.add_option("--mtu", arguments->mtu, "of the hosts' devices")
      ->check(CLI::Range(576, 9000))
      ->capture_default_str();
  app.add_option("--set", arguments->settings,
                 "of the switches, KEY=VALUE as in a scenario's 'network', as mark_above=30KB")
      ->allow_extra_args(false);
  app.add_option("--aggregate", arguments->aggregate,
                 "a switch that sums gradients of ATP (may be given again), or all")
      ->allow_extra_args(false);
  app.add_flag("--foreground", arguments->foreground, "stay; Ctrl-C takes the testbed down");
  on_run(app, [arguments] { return up(*arguments); });
}

}  // namespace thalweg
