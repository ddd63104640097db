#include "lab/bench/allreduce/crew.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/check.h"
#include "lab/bench/allreduce/rank.h"
#include "launch/spawn.h"
#include "net/io/system.h"

namespace thalweg::lab::allreduce {
namespace {

// How long to wait before looking at the processes again.
constexpr int kLookMs = 100;
// The time from the end of the socket to SIGTERM, and from there to SIGKILL.
constexpr Duration kGrace = Duration::milliseconds(5'000);
// Characters of what the processes printed that an error shows.
constexpr std::size_t kShownOutput = 2'000;

net::Fd new_socket() { return net::Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

// Waits until the process has ended. Returns false if it has not at the deadline.
bool wait_for_end(pid_t process, Time deadline) {
  for (;;) {
    if (waitpid(process, nullptr, WNOHANG) != 0) return true;
    if (net::monotonic_now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

Result<std::unique_ptr<Stage>> Stage::make(const EmulatedNetwork* network) {
  std::unique_ptr<Stage> stage(new Stage());
  stage->network_ = network;
  THALWEG_TRY(stage->guardian_, launch::RunGuardian::start());
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  stage->signals_ = net::Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!stage->signals_.valid()) return net::system_error("cannot wait for signals", errno);
  std::error_code error;
  std::string folder =
      std::filesystem::temp_directory_path(error).string() + "/thalweg-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return net::system_error(fmt::format("cannot make the folder {}", folder), errno);
  }
  stage->folder_ = std::move(folder);
  return stage;
}

Stage::~Stage() {
  if (!folder_.empty()) remove_folder();
}

void Stage::remove_folder() const {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Crew::Crew(const Stage& stage, CrewPlan plan, int ranks)
    : stage_(stage),
      plan_(std::move(plan)),
      size_(static_cast<std::size_t>(ranks)),
      ranks_(size_),
      output_("output") {}

Result<std::unique_ptr<Crew>> Crew::start(const Stage& stage, CrewPlan plan, int ranks) {
  std::unique_ptr<Crew> crew(new Crew(stage, std::move(plan), ranks));
  THALWEG_TRY_STATUS(crew->listen());
  THALWEG_TRY_STATUS(crew->spawn_all());
  return crew;
}

Status Crew::listen() {
  listener_ = new_socket();
  // No other crew has the same descriptor, so the path is unique.
  path_ = fmt::format("{}/crew{}", stage_.folder(), listener_.get());
  THALWEG_TRY(const sockaddr_un address, socket_name(path_));
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener_.get(), static_cast<int>(size_)) != 0) {
    return net::system_error(fmt::format("cannot listen at {}", path_), errno);
  }
  return ok_status();
}

Status Crew::spawn_all() {
  if (output_.descriptor() < 0) return net::system_error("cannot make a file in memory", errno);
  for (const CrewProcess& process : plan_.processes) {
    launch::SpawnRequest request{.command = process.command,
                                 .environment = process.environment,
                                 .out = output_.descriptor(),
                                 .err = output_.descriptor(),
                                 .own_group = true,
                                 .cores = process.cores};
    request.environment.push_back(fmt::format("{}={}", kControlVariable, path_));
    const auto start_it = [&] { return launch::spawn(request); };
    THALWEG_TRY(const pid_t pid, stage_.network() == nullptr
                                     ? start_it()
                                     : stage_.network()->inside(process.host, start_it));
    stage_.guardian().watch(pid);
    processes_.push_back(pid);
  }
  return ok_status();
}

Crew::~Crew() {
  for (net::Fd& rank : ranks_) rank.reset();
  listener_.reset();
  const Time asked = net::monotonic_now();
  std::vector<pid_t> left;
  for (const pid_t process : processes_) {
    if (!healthy_ || !wait_for_end(process, asked + kGrace)) left.push_back(process);
  }
  for (const pid_t process : left) kill(-process, SIGTERM);
  const Time told = net::monotonic_now();
  for (const pid_t process : left) {
    if (wait_for_end(process, told + kGrace)) continue;
    kill(-process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  for (const pid_t process : processes_) stage_.guardian().forget(process);
}

Error Crew::failed(const std::string& why) const {
  std::string printed = output_.content();
  if (printed.size() > kShownOutput) printed = "…" + printed.substr(printed.size() - kShownOutput);
  while (printed.ends_with('\n')) printed.pop_back();
  return Error(fmt::format("{} over {}: {}{}{}", plan_.library, plan_.transport, why,
                           printed.empty() ? "" : "; it printed:\n", printed));
}

Result<std::vector<bool>> Crew::wait_for(const std::vector<int>& sockets, Time deadline,
                                         const std::vector<bool>& heard) const {
  std::vector<pollfd> items;
  items.reserve(sockets.size() + 1);
  for (const int fd : sockets) items.push_back({fd, POLLIN, 0});
  items.push_back({stage_.signals(), POLLIN, 0});
  if (poll(items.data(), items.size(), kLookMs) < 0 && errno != EINTR) {
    return net::system_error("poll", errno);
  }
  if (items.back().revents != 0) return Error("told to stop");
  items.pop_back();
  std::vector<bool> ready;
  ready.reserve(items.size());
  for (const pollfd& item : items) ready.push_back(item.revents != 0);
  if (std::ranges::find(ready, true) == ready.end() && net::monotonic_now() >= deadline) {
    std::vector<std::size_t> silent;
    for (std::size_t rank = 0; rank < size_; ++rank) {
      if (!heard[rank]) silent.push_back(rank);
    }
    return failed(fmt::format("too long without a word from rank {}", fmt::join(silent, ", ")));
  }
  return ready;
}

Result<std::string> Crew::receive(int socket, const std::string& who) const {
  std::string message(kMaxMessage, '\0');
  const ssize_t got = recv(socket, message.data(), message.size(), 0);
  if (got <= 0) return failed(who + " has ended");
  message.resize(static_cast<std::size_t>(got));
  if (message.starts_with("failed ")) return failed(who + ": " + message.substr(7));
  return message;
}

// Notices processes that end before they have connected, which no socket shows.
Status Crew::check_processes() {
  for (const pid_t process : processes_) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == process) {
      return failed(info.si_code == CLD_EXITED
                        ? fmt::format("a process ended with code {}", info.si_status)
                        : fmt::format("a process was ended by signal {}", info.si_status));
    }
  }
  return ok_status();
}

Status Crew::meet(Duration limit) {
  healthy_ = false;
  const Time deadline = net::monotonic_now() + limit;
  std::vector<net::Fd> strangers;
  for (std::size_t here = 0; here < size_;) {
    std::vector<int> sockets = {listener_.get()};
    sockets.reserve(strangers.size() + 1);
    for (const net::Fd& stranger : strangers) sockets.push_back(stranger.get());
    std::vector<bool> met;
    met.reserve(size_);
    for (const net::Fd& rank : ranks_) met.push_back(rank.valid());
    THALWEG_TRY(const std::vector<bool> ready, wait_for(sockets, deadline, met));
    THALWEG_TRY_STATUS(check_processes());
    for (std::size_t i = 0; i < strangers.size(); ++i) {
      if (!ready[i + 1]) continue;
      THALWEG_TRY(const std::string hello, receive(strangers[i].get(), "a rank"));
      // "hello RANK VERSION"
      std::size_t rank = size_;
      const char* const end = hello.data() + hello.size();
      const char* const after =
          std::from_chars(hello.data() + std::min(hello.size(), std::size_t{6}), end, rank).ptr;
      if (rank >= size_ || ranks_[rank].valid()) return failed("it said " + hello);
      version_.assign(after, end);
      version_.erase(0, version_.find_first_not_of(' '));
      ranks_[rank] = std::move(strangers[i]);
      ++here;
    }
    std::erase_if(strangers, [](const net::Fd& fd) { return !fd.valid(); });
    if (ready[0]) strangers.emplace_back(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  healthy_ = true;
  return ok_status();
}

void Crew::tell(const std::string& message) const {
  for (const net::Fd& rank : ranks_) {
    // A rank that has ended is noticed when its answer is due.
    [[maybe_unused]] const ssize_t sent =
        send(rank.get(), message.data(), message.size(), MSG_NOSIGNAL);
  }
}

Result<std::vector<std::string>> Crew::hear(const std::string& verb, Duration limit) {
  healthy_ = false;
  const Time deadline = net::monotonic_now() + limit;
  std::vector<std::string> answers(size_);
  std::vector<bool> heard(size_, false);
  while (std::ranges::find(heard, false) != heard.end()) {
    std::vector<int> sockets;
    sockets.reserve(size_);
    for (std::size_t rank = 0; rank < size_; ++rank) {
      sockets.push_back(heard[rank] ? -1 : ranks_[rank].get());
    }
    THALWEG_TRY(const std::vector<bool> ready, wait_for(sockets, deadline, heard));
    for (std::size_t rank = 0; rank < size_; ++rank) {
      if (!ready[rank]) continue;
      const std::string who = fmt::format("rank {}", rank);
      THALWEG_TRY(const std::string answer, receive(ranks_[rank].get(), who));
      if (!answer.starts_with(verb + " ")) return failed(fmt::format("{} said {}", who, answer));
      answers[rank] = answer.substr(verb.size() + 1);
      heard[rank] = true;
    }
  }
  healthy_ = true;
  return answers;
}

}  // namespace thalweg::lab::allreduce
