// The child's input, output and errors are anonymous files in memory rather than pipes: nothing has
// to be pumped while it runs, and nothing can block or raise SIGPIPE.
#include "cli/child_process.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

namespace thalweg {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{5};
constexpr int kCannotStart = 127;

class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : descriptor_(memfd_create(name, MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }

  // Leaves the place to read from at the start.
  bool fill(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t written = write(descriptor_, text.data() + done, text.size() - done);
      if (written < 0) return false;
      done += static_cast<std::size_t>(written);
    }
    return lseek(descriptor_, 0, SEEK_SET) == 0;
  }

  std::string content() {
    std::string text;
    std::array<char, 1 << 16> block{};
    for (off_t at = 0;;) {
      const ssize_t got = pread(descriptor_, block.data(), block.size(), at);
      if (got <= 0) return text;
      text.append(block.data(), static_cast<std::size_t>(got));
      at += got;
    }
  }

 private:
  int descriptor_;
};

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> all = additions;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  return all;
}

// Runs in the child, where only calls that are safe in a signal handler may be made: the parent may
// have threads. The errno of a program that cannot be started goes to the error file.
[[noreturn]] void become(char* const* command, char* const* environment, int in, int out, int err,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotStart);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvpe(command[0], command, environment);
  const char* reason = strerrordesc_np(errno);
  if (reason != nullptr && write(STDERR_FILENO, reason, std::strlen(reason)) < 0) _exit(1);
  _exit(kCannotStart);
}

// Waits until the child has ended; kills it at the limit. False: it ran past the limit.
bool wait_for(pid_t child, std::chrono::milliseconds limit, int& status) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended == 0 && std::chrono::steady_clock::now() >= deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

Result<ChildOutcome> run_child(const ChildRequest& request) {
  std::vector<std::string> command = request.command;
  std::vector<std::string> environment = environment_with(request.environment);
  const std::vector<char*> command_pointers = pointers_to(command);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  const auto failed = [&](const char* reason) {
    return Error(fmt::format("cannot run {}: {}", request.command.front(), reason));
  };
  MemoryFile in("input");
  MemoryFile out("output");
  MemoryFile err("errors");
  if (in.descriptor() < 0 || out.descriptor() < 0 || err.descriptor() < 0 ||
      !in.fill(request.input)) {
    return failed(std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return failed(std::strerror(errno));
  if (child == 0) {
    become(command_pointers.data(), environment_pointers.data(), in.descriptor(), out.descriptor(),
           err.descriptor(), parent);
  }
  int status = 0;
  if (!wait_for(child, request.limit, status)) {
    return failed(fmt::format("it took more than {} s", request.limit.count() / 1000).c_str());
  }
  ChildOutcome outcome{
      .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
      .output = out.content(),
      .errors = err.content()};
  if (outcome.exit_code == kCannotStart && outcome.output.empty()) {
    return failed(outcome.errors.c_str());
  }
  return outcome;
}

}  // namespace thalweg
