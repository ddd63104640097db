// A switch as a process of its own, which can be stopped and continued.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/check.h"
#include "net/ranks.h"
#include "switchd/daemon.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {

class SwitchProcess {
 public:
  // Starts a switch at these addresses, "host:port" with a port. Call it while this process has no
  // other threads: it forks a second process, which starts the switch, now and later.
  explicit SwitchProcess(std::string control = net::free_address(),
                         std::string data = net::free_address())
      : control_(std::move(control)), data_(std::move(data)) {
    int ends[2] = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    starter_ = fork();
    if (starter_ == 0) {
      close(ends[0]);
      start_when_asked(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    starts_ = net::Fd(ends[0]);
    start('s');
  }
  ~SwitchProcess() {
    static_cast<void>(signal_to(switch_, SIGKILL));
    if (signal_to(starter_, SIGKILL)) waitpid(starter_, nullptr, 0);
  }
  SwitchProcess(const SwitchProcess&) = delete;
  SwitchProcess& operator=(const SwitchProcess&) = delete;

  [[nodiscard]] const std::string& control_address() const { return control_; }
  void stop() const { EXPECT_TRUE(signal_to(switch_, SIGSTOP)); }
  void go_on() const { EXPECT_TRUE(signal_to(switch_, SIGCONT)); }
  // Ends it and starts it again, at the same addresses, without its jobs. It stops as soon as it
  // listens.
  void restart_stopped() { start('S'); }
  // The answer to {"op": op}.
  [[nodiscard]] nlohmann::json ask(const char* op) const {
    net::SwitchClient client =
        std::move(*net::SwitchClient::connect(control_, switch_secrets(), soon()));
    return std::move(*client.ask({{"op", op}}, soon()));
  }
  // The sequences that its jobs have completed.
  [[nodiscard]] std::uint64_t completed() const {
    std::uint64_t sum = 0;
    const nlohmann::json stats = ask("stats");
    for (const nlohmann::json& job : stats.at("jobs")) {
      sum += job.at("counters").at("completed").get<std::uint64_t>();
    }
    return sum;
  }

 private:
  // False: there is no such process, or it was never started. A number below 1 would mean others.
  [[nodiscard]] static bool signal_to(pid_t process, int signal) {
    return process > 0 && kill(process, signal) == 0;
  }
  void start(char how) {
    switch_ = -1;
    EXPECT_EQ(write(starts_.get(), &how, 1), 1);
    EXPECT_EQ(read(starts_.get(), &switch_, sizeof(switch_)), ssize_t{sizeof(switch_)});
    EXPECT_GT(switch_, 0) << "no switch at " << control_ << " and " << data_;
    CHECK(switch_ > 0);
  }
  // In the second process: answers each request by the number of the switch's process.
  void start_when_asked(int asks) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid_t last = -1;
    for (char how = 0; read(asks, &how, 1) == 1;) {
      if (last > 0) kill(last, SIGKILL);
      if (last > 0) waitpid(last, nullptr, 0);
      int ends[2] = {};
      if (pipe(ends) != 0) return;
      last = fork();
      if (last == 0) serve(ends[1], how == 'S');
      close(ends[1]);
      char well = 0;
      const bool listens = read(ends[0], &well, 1) == 1 && well == '+';
      close(ends[0]);
      const pid_t told = listens ? last : -1;
      if (write(asks, &told, sizeof(told)) != sizeof(told)) return;
    }
  }
  // In the switch's process.
  [[noreturn]] void serve(int tells, bool stopped) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    SwitchConfig config;
    config.key = switch_secrets().key;
    config.control = control_;
    config.data = data_;
    const auto daemon = SwitchDaemon::start(config);
    const char well = daemon.ok() ? '+' : '-';
    if (write(tells, &well, 1) != 1 || !daemon.ok()) _exit(1);
    if (stopped) raise(SIGSTOP);
    while (true) pause();
  }

  std::string control_;
  std::string data_;
  net::Fd starts_;
  pid_t starter_ = -1;
  pid_t switch_ = -1;
};

}  // namespace thalweg::switchd
