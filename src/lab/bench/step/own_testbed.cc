#include "lab/bench/step/own_testbed.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "lab/testbed/up.h"
#include "launch/pipe.h"
#include "net/io/system.h"

namespace thalweg::lab::step {
namespace {

constexpr Duration kDownLimit = Duration::milliseconds(30'000);

// The testbed's process. It says "+" when it is up, or "-" and what is wrong. A signal of the
// terminal does not reach it: the benchmark ends its ranks first, and then the testbed.
[[noreturn]] void be_testbed(const TestbedUpOptions& options, pid_t parent, launch::Pipe pipe) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  pipe.read.reset();
  const auto say = [&](const std::string& text) {
    const bool heard =
        write(pipe.write.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    pipe.write.reset();
    return heard;
  };
  const Status status = bring_up_testbed(options, [&](const std::string&) { return say("+"); });
  if (!status.ok() && pipe.write.valid()) say("-" + status.error().message());
  _exit(status.ok() ? 0 : 1);
}

}  // namespace

Result<std::unique_ptr<OwnTestbed>> OwnTestbed::bring_up(TestbedUpOptions options) {
  options.name = fmt::format("step{}", getpid());
  options.foreground = true;
  THALWEG_TRY(TestbedPlace place, TestbedPlace::of(options.name));
  THALWEG_TRY(launch::Pipe pipe, launch::Pipe::make());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return net::system_error("cannot start the testbed's process", errno);
  if (child == 0) be_testbed(options, parent, std::move(pipe));
  std::unique_ptr<OwnTestbed> testbed(new OwnTestbed(std::move(place), child));
  pipe.write.reset();
  const std::string said = launch::read_all(pipe.read.get());
  if (said.starts_with('+')) return testbed;
  return Error(said.empty() ? "the testbed's process has ended" : said.substr(1));
}

OwnTestbed::~OwnTestbed() {
  kill(process_, SIGTERM);
  const Time asked = net::monotonic_now();
  int status = 0;
  while (waitpid(process_, &status, WNOHANG) == 0) {
    if (net::monotonic_now() - asked > kDownLimit) kill(process_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // A process that was killed leaves its namespaces.
  if (!WIFEXITED(status)) {
    [[maybe_unused]] const Status removed = place_.take_down();
  }
}

}  // namespace thalweg::lab::step
