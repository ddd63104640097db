#include "lab/testbed/up.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "lab/console.h"
#include "lab/files.h"
#include "lab/testbed/aggregator_process.h"
#include "lab/testbed/aggregators.h"
#include "lab/testbed/capacity.h"
#include "lab/testbed/frame.h"
#include "lab/testbed/hosts.h"
#include "lab/testbed/place.h"
#include "lab/testbed/switchboard.h"
#include "launch/pipe.h"
#include "net/io/system.h"
#include "topology/format/load.h"

namespace thalweg::lab {
namespace {

constexpr int kExitFailed = 2;  // of the testbed's process

// An error if the hosts could send more frames than this machine can carry.
Status check_capacity(const topology::Topology& topology, const TestbedSettings& settings) {
  std::vector<Bandwidth> rates;
  for (const topology::Link& link : topology.links()) rates.push_back(link.spec.rate);
  const double needed = frames_needed(topology, rates, settings.mtu);
  if (needed <= settings.frames_per_second) return ok_status();
  return Error(fmt::format(
      "the hosts' links can carry {:.0f} frames of {} bytes a second, and this machine {:.0f}: "
      "give --scale {:.1g} or less",
      needed, settings.mtu, settings.frames_per_second,
      settings.scale * settings.frames_per_second / needed / 2));
}

// Runs this thread before those of other programs, so that frames do not wait for them. Where the
// user may not do that, some frames are late; the statistics count them.
void be_urgent() {
  const sched_param priority{.sched_priority = 1};
  sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &priority);
  prctl(PR_SET_TIMERSLACK, 1UL);
}

// Blocks the signals that end a program, and returns which they are.
sigset_t block_ends() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

// A testbed in this process: set up, run and removed.
class Testbed {
 public:
  Testbed(const TestbedPlace& place, const topology::Topology& topology,
          const TestbedSettings& settings)
      : place_(place), topology_(topology), settings_(settings) {}

  // Sets the testbed up, calls `ready`, and runs until it is told to end; or not at all if `ready`
  // returns false. Removes everything in any case. `lock`: of the place, which this process holds.
  template <class Ready>
  Status run(const net::Fd& lock, Ready ready) {
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
  Status prepare(const net::Fd& lock) {
    // The process that waits for the testbed may have ended. Writing to it must not end this one
    // before everything is removed.
    std::signal(SIGPIPE, SIG_IGN);
    const sigset_t ends = block_ends();
    net::Fd signals(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.valid()) return net::system_error("cannot make a signalfd", errno);
    const std::string number = fmt::format("{}\n", getpid());
    if (write(lock.get(), number.data(), number.size()) < 0) {
      return net::system_error("cannot write the lock", errno);
    }
    THALWEG_TRY_STATUS(become_able_to_make_networks());
    THALWEG_TRY(std::vector<TestbedHost> hosts, make_testbed_hosts(place_, topology_, settings_));
    THALWEG_TRY_STATUS(check_capacity(topology_, settings_));
    THALWEG_TRY_STATUS(write_files({{place_.topology(), topology::topology_to_yaml(topology_)}}));
    THALWEG_TRY(net::Fd listener, place_.listen());
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
      THALWEG_TRY(auto one, AggregatorProcess::start(
                                settings_.aggregate[i],
                                address_of(Rank(static_cast<std::int32_t>(first + i))),
                                hosts[first + i].space.get(), place_, settings_.switch_token));
      started.push_back(std::move(one));
    }
    return started;
  }

  const TestbedPlace& place_;
  const topology::Topology& topology_;
  TestbedSettings settings_;
  std::unique_ptr<Switchboard> board_;
};

// What a user is told when the testbed is up. `capacity`: frames per second.
std::string announcement(const TestbedPlace& place, const topology::Topology& topology,
                         const std::string& capacity) {
  // The hosts of aggregators are among them: they have addresses too.
  std::string text =
      fmt::format("testbed '{}': {} hosts, {} links; this machine carries {} frames/s\n",
                  place.name(), topology.host_count(), topology.links().size(), capacity);
  std::vector<std::vector<std::string>> rows{{"host", "name", "address", "namespace"}};
  for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
    rows.push_back({std::to_string(rank.value()), topology.node(topology.host(rank)).name,
                    address_of(rank),
                    place.is_of_root() ? fmt::format("{}-h{}", place.name(), rank.value()) : "-"});
  }
  return text + format_table(rows);
}

// Runs the testbed in a child process without a terminal, in the root folder. The child writes to a
// pipe: "+" and the frames per second that it carries, or "-" and what is wrong. It runs only when
// this process has answered "+". So if this process is ended before it answers, there is no
// testbed; from the answer on, signals do not end this process before it has announced the testbed.
Status run_in_background(const TestbedPlace& place, const topology::Topology& topology,
                         const TestbedSettings& settings, const AnnounceTestbed& announce) {
  THALWEG_TRY(net::Fd lock, place.occupy());
  THALWEG_TRY(launch::Pipe pipe, launch::Pipe::make());
  THALWEG_TRY(launch::Pipe answer, launch::Pipe::make());
  const pid_t child = fork();
  if (child < 0) return net::system_error("cannot start the testbed's process", errno);
  if (child == 0) {
    pipe.read.reset();
    answer.write.reset();
    setsid();
    const net::Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
    const net::Fd log(open(place.log().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    dup2(nothing.get(), STDIN_FILENO);
    dup2(log.get(), STDOUT_FILENO);
    dup2(log.get(), STDERR_FILENO);
    if (chdir("/") != 0) _exit(kExitFailed);
    const auto say = [&](const std::string& text) {
      const auto size = static_cast<ssize_t>(text.size());
      const bool heard = write(pipe.write.get(), text.data(), text.size()) == size;
      pipe.write.reset();
      return heard;
    };
    Testbed testbed(place, topology, settings);
    const Status status = testbed.run(lock, [&] {
      return say(fmt::format("+{:.0f}", testbed.settings().frames_per_second)) &&
             !launch::read_all(answer.read.get()).empty();
    });
    if (!status.ok() && pipe.write.valid()) say("-" + status.error().message());
    _exit(status.ok() ? 0 : kExitFailed);
  }
  pipe.write.reset();
  answer.read.reset();
  lock.reset();
  const std::string said = launch::read_all(pipe.read.get());
  if (said.starts_with('+')) {
    block_ends();
    std::signal(SIGPIPE, SIG_IGN);  // the child may have ended since
    if (write(answer.write.get(), "+", 1) != 1)
      return net::system_error("the testbed has ended", errno);
    answer.write.reset();
    announce(announcement(place, topology, said.substr(1)));
    return ok_status();
  }
  waitpid(child, nullptr, 0);
  return Error(said.empty() ? "the testbed's process ended at once" : said.substr(1));
}

}  // namespace

Status bring_up_testbed(const TestbedUpOptions& options, const AnnounceTestbed& announce) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(options.name));
  THALWEG_TRY(const topology::Topology read, load_topology(options.topology));
  if (read.host_count() < 2 || read.host_count() > kMaxTestbedHosts) {
    return Error(fmt::format("{}: {} hosts; a testbed has 2 to {}", options.topology,
                             read.host_count(), kMaxTestbedHosts));
  }
  THALWEG_TRY(const topology::Topology links, scaled_topology(read, options.scale));
  TestbedSettings settings{.name = options.name,
                           .folder = place.folder(),
                           .mtu = options.mtu,
                           .scale = options.scale,
                           .aggregate = options.aggregate,
                           .switch_token = fmt::format("{:016x}", net::random_number())};
  THALWEG_TRY(const topology::Topology topology, with_aggregators(links, settings.aggregate));
  THALWEG_TRY(settings.network, network_options_from(options.settings));
  settings.network.seed = options.seed;
  if (!options.foreground) return run_in_background(place, topology, settings, announce);
  THALWEG_TRY(const net::Fd lock, place.occupy());
  Testbed testbed(place, topology, settings);
  return testbed.run(lock, [&] {
    return announce(
        announcement(place, topology, fmt::format("{:.0f}", testbed.settings().frames_per_second)));
  });
}

}  // namespace thalweg::lab
