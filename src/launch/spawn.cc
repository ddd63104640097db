#include "launch/spawn.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "launch/pipe.h"

namespace thalweg::launch {
namespace {

constexpr int kCannotStart = 127;

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string_view name_in(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> all = additions;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const auto same = [&](const std::string& other) {
      return name_in(other) == name_in(*variable);
    };
    if (std::ranges::none_of(additions, same)) all.emplace_back(*variable);
  }
  return all;
}

cpu_set_t set_of(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  return set;
}

void take_over(int from, int to) {
  if (from == to) {
    fcntl(from, F_SETFD, 0);
  } else {
    dup2(from, to);
  }
}

// Runs in the child. Since the parent may have threads, it may only make calls that are safe in a
// signal handler. If the program cannot be started, writes the errno to `failure`.
[[noreturn]] void become(const SpawnRequest& request, char* const* command,
                         char* const* environment, const cpu_set_t& cores, pid_t parent,
                         int failure) {
  if (request.own_group) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotStart);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  take_over(request.in, STDIN_FILENO);
  take_over(request.out, STDOUT_FILENO);
  take_over(request.err, STDERR_FILENO);
  const bool bound = CPU_COUNT(&cores) == 0 || sched_setaffinity(0, sizeof(cores), &cores) == 0;
  if (bound) execvpe(command[0], command, environment);
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &reason, sizeof(reason));
  _exit(kCannotStart);
}

}  // namespace

Result<pid_t> spawn(const SpawnRequest& request) {
  std::vector<std::string> command = request.command;
  std::vector<std::string> environment = environment_with(request.environment);
  const std::vector<char*> command_pointers = pointers_to(command);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  const auto failed = [&](int reason) {
    return Error(fmt::format("cannot run {}: {}", request.command.front(), std::strerror(reason)));
  };
  const cpu_set_t cores = set_of(request.cores);
  THALWEG_TRY(Pipe pipe, Pipe::make());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return failed(errno);
  if (child == 0) {
    become(request, command_pointers.data(), environment_pointers.data(), cores, parent,
           pipe.write.get());
  }
  pipe.write.reset();
  int reason = 0;
  ssize_t got = 0;
  // exec() closes the pipe, so read() returns 0 bytes when the program has started.
  do {
    got = read(pipe.read.get(), &reason, sizeof(reason));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return child;
  waitpid(child, nullptr, 0);
  return failed(reason);
}

}  // namespace thalweg::launch
