#include "launch/supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "launch/pipe.h"
#include "launch/spawn.h"
#include "net/io/event_loop.h"
#include "net/io/fd.h"
#include "net/io/system.h"

namespace thalweg::launch {
namespace {

constexpr std::size_t kReadSize = 65'536;
// A longer line is passed on in parts.
constexpr std::size_t kLongestLine = 65'536;
// How long to read outputs after all processes have ended. Their last lines arrive at once; only a
// process that left its group can keep an output open for longer.
constexpr Duration kDrainTime = Duration::milliseconds(500);
// Added to the grace of a process that is asked to end by closing its input: it asks its own
// processes first, with a grace of its own.
constexpr Duration kRelayTime = Duration::milliseconds(3'000);

// Returns 0 or the errno.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

void say(const std::string& text) { write_all(STDERR_FILENO, "thalweg run: " + text + "\n"); }

// The input of a process is a socket, because writing to a closed one need not raise a signal.
Result<Pipe> make_input() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return net::system_error("cannot make a socket", errno);
  }
  return Pipe{net::Fd(ends[0]), net::Fd(ends[1])};
}

void send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;  // the process has ended; SIGCHLD reports that
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// The standard output or error of a process, passed on in lines.
struct Output {
  net::Fd fd;
  int to = STDOUT_FILENO;
  std::string prefix;
  std::string line;  // the part of the last line that has arrived

  // Reads once and passes on complete lines. Returns false at the end of the output. If output
  // cannot be passed on, sets `lost` to the errno of the first time.
  bool pump(int& lost) {
    std::array<char, kReadSize> bytes;
    const ssize_t got = read(fd.get(), bytes.data(), bytes.size());
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    std::string text;
    for (const char c : std::string_view(bytes.data(), static_cast<std::size_t>(got))) {
      line += c;
      if (c == '\n' || line.size() >= kLongestLine) end_line(text);
    }
    if (got == 0 && !line.empty()) end_line(text);
    if (const int failure = write_all(to, text); lost == 0) lost = failure;
    return got > 0;
  }
  void end_line(std::string& text) {
    text += prefix + line;
    if (!line.ends_with('\n')) text += '\n';
    line.clear();
  }
};

struct Process {
  std::string name;
  pid_t pid = 0;
  net::Fd input;
  bool ended = false;
};

}  // namespace

// One run: an event loop for signals, outputs and times.
class Supervisor::Job final : public net::EventLoop::Handler {
 public:
  Job(std::unique_ptr<net::EventLoop> loop, RunGuardian& guardian, int signals,
      const SupervisorOptions& options)
      : loop_(std::move(loop)), guardian_(guardian), signals_(signals), options_(options) {}
  ~Job() override {
    for (Process& process : processes_) end_group(process, SIGKILL);
    for (Process& process : processes_) {
      if (!process.ended) waitpid(process.pid, nullptr, 0);
      guardian_.forget(process.pid);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Status start(const SupervisedProcess& wanted);
  Result<int> run();
  void on_ready(int fd, std::uint32_t events) override;

 private:
  std::optional<Time> turn();
  Status watch(net::Fd fd, int to, const std::string& prefix);
  void on_signals();
  void reap();
  void on_ended(Process& process, int status);
  // Asks all processes to end. `code`: our exit code unless a process has failed before.
  void stop(int signal, int code);
  void end_group(const Process& process, int signal) {
    if (!process.ended) kill(-process.pid, signal);
  }

  std::unique_ptr<net::EventLoop> loop_;
  RunGuardian& guardian_;
  int signals_;
  SupervisorOptions options_;
  std::vector<Process> processes_;
  std::vector<Output> outputs_;
  int code_ = 0;
  int lost_ = 0;  // set by Output::pump()
  std::optional<Time> timeout_at_;
  std::optional<Time> kill_at_;  // set once all were asked to end
  std::optional<Time> drain_until_;
};

Status Supervisor::Job::start(const SupervisedProcess& wanted) {
  net::Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnRequest request{.command = wanted.command,
                       .environment = wanted.environment,
                       .in = nothing.get(),
                       .own_group = true,
                       .cores = wanted.cores};
  Pipe in;
  Pipe out;
  Pipe err;
  if (wanted.input) {
    THALWEG_TRY(in, make_input());
    request.in = in.read.get();
  }
  if (!options_.raw_output) {
    THALWEG_TRY(out, Pipe::make());
    THALWEG_TRY(err, Pipe::make());
    request.out = out.write.get();
    request.err = err.write.get();
  }
  THALWEG_TRY(const pid_t pid, spawn(request));
  guardian_.watch(pid);
  processes_.push_back({wanted.name, pid, std::move(in.write), false});
  if (wanted.input) send_all(processes_.back().input.get(), *wanted.input);
  if (options_.raw_output) return ok_status();
  THALWEG_TRY_STATUS(watch(std::move(out.read), STDOUT_FILENO, wanted.prefix));
  return watch(std::move(err.read), STDERR_FILENO, wanted.prefix);
}

Status Supervisor::Job::watch(net::Fd fd, int to, const std::string& prefix) {
  fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  THALWEG_TRY_STATUS(loop_->add(fd.get(), EPOLLIN, *this));
  outputs_.push_back({std::move(fd), to, prefix, {}});
  return ok_status();
}

Result<int> Supervisor::Job::run() {
  THALWEG_TRY_STATUS(loop_->add(signals_, EPOLLIN, *this));
  if (options_.stop_at_end_of >= 0) {
    THALWEG_TRY_STATUS(loop_->add(options_.stop_at_end_of, EPOLLIN, *this));
  }
  if (options_.timeout) timeout_at_ = net::monotonic_now() + *options_.timeout;
  reap();
  loop_->run([this] { return turn(); });
  if (lost_ != 0 && code_ == 0)
    return net::system_error("cannot pass on what the ranks print", lost_);
  return code_;
}

void Supervisor::Job::on_ready(int fd, std::uint32_t /*events*/) {
  if (fd == signals_) {
    on_signals();
  } else if (fd == options_.stop_at_end_of) {
    std::array<char, 512> ignored;
    if (read(fd, ignored.data(), ignored.size()) > 0) return;
    loop_->remove(fd);
    stop(SIGTERM, 128 + SIGTERM);
  } else {
    const auto output = std::ranges::find(outputs_, fd, [](const Output& o) { return o.fd.get(); });
    if (output == outputs_.end() || output->pump(lost_)) return;
    loop_->remove(fd);
    outputs_.erase(output);
  }
}

void Supervisor::Job::on_signals() {
  signalfd_siginfo info{};
  if (read(signals_, &info, sizeof(info)) != sizeof(info)) return;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) {
    reap();
  } else if (kill_at_) {
    kill_at_ = net::monotonic_now();  // a second signal: do not wait
  } else {
    say(fmt::format("got signal {} ({}); ending all", signal, sigdescr_np(signal)));
    stop(signal, 128 + signal);
  }
}

void Supervisor::Job::reap() {
  for (Process& process : processes_) {
    siginfo_t info{};
    if (process.ended ||
        waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      continue;
    }
    // Before waitpid(), so that no other process can have its number.
    end_group(process, SIGKILL);
    int status = 0;
    waitpid(process.pid, &status, 0);
    guardian_.forget(process.pid);
    process.ended = true;
    process.input.reset();
    on_ended(process, status);
  }
}

void Supervisor::Job::on_ended(Process& process, int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0 || kill_at_) return;
  const std::string how = WIFEXITED(status)
                              ? fmt::format("ended with exit code {}", code)
                              : fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                                            sigdescr_np(WTERMSIG(status)));
  const bool others = std::ranges::any_of(processes_, [](const Process& p) { return !p.ended; });
  const char* then = !others               ? ""
                     : options_.keep_going ? "; the others go on"
                                           : "; ending the others";
  say(fmt::format("{} (process {}) {}{}", process.name, process.pid, how, then));
  if (code_ == 0) code_ = code;
  if (!options_.keep_going) stop(SIGTERM, code);
}

void Supervisor::Job::stop(int signal, int code) {
  if (kill_at_) return;
  if (code_ == 0) code_ = code;
  Duration grace = options_.grace;
  for (Process& process : processes_) {
    if (process.input.valid()) {
      process.input.reset();
      grace = options_.grace + kRelayTime;
    } else {
      end_group(process, signal);
    }
  }
  kill_at_ = net::monotonic_now() + grace;
}

std::optional<Time> Supervisor::Job::turn() {
  const Time now = net::monotonic_now();
  if (timeout_at_ && now >= *timeout_at_ && !kill_at_) {
    say(fmt::format("not done after {}; ending all", to_human(*options_.timeout)));
    stop(SIGTERM, kExitTimeout);
  }
  const bool all_ended = std::ranges::all_of(processes_, &Process::ended);
  if (all_ended) {
    if (!drain_until_) drain_until_ = now + kDrainTime;
    if (outputs_.empty() || now >= *drain_until_) loop_->stop();
    return drain_until_;
  }
  if (kill_at_ && now >= *kill_at_) {
    for (const Process& process : processes_) end_group(process, SIGKILL);
    return std::nullopt;
  }
  return kill_at_ ? kill_at_ : timeout_at_;
}

Result<Supervisor> Supervisor::prepare() {
  THALWEG_TRY(auto guardian, RunGuardian::start());
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&taken, signal);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  net::Fd signals(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return net::system_error("cannot take signals", errno);
  return Supervisor(std::move(guardian), std::move(signals));
}

Result<int> Supervisor::run(const std::vector<SupervisedProcess>& processes,
                            const SupervisorOptions& options) {
  THALWEG_TRY(std::unique_ptr<net::EventLoop> loop, net::EventLoop::make());
  Job job(std::move(loop), *guardian_, signals_.get(), options);
  for (const SupervisedProcess& process : processes) THALWEG_TRY_STATUS(job.start(process));
  return job.run();
}

}  // namespace thalweg::launch
