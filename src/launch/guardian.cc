#include "launch/guardian.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>

#include "launch/pipe.h"
#include "net/io/system.h"

namespace thalweg::launch {
namespace {

// The guardian's process. Runs until the other end of the pipe is closed, by or with the
// supervisor.
[[noreturn]] void guard(int pipe) {
  // A session of its own and ignored signals: signals for the supervisor must not end the guardian.
  setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  // The guardian keeps no output open, since a reader would wait for the end of it.
  const int nothing = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    nothing < 0 ? close(fd) : dup2(nothing, fd);
  }
  std::set<pid_t> groups;
  while (true) {
    pid_t number = 0;
    const ssize_t got = read(pipe, &number, sizeof(number));
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof(number)) break;
    if (number > 0) {
      groups.insert(number);
    } else {
      groups.erase(-number);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Result<std::unique_ptr<RunGuardian>> RunGuardian::start() {
  THALWEG_TRY(Pipe pipe, Pipe::make());
  const pid_t process = fork();
  if (process < 0) return net::system_error("cannot start a process", errno);
  if (process == 0) {
    pipe.write.reset();
    guard(pipe.read.get());
  }
  return std::unique_ptr<RunGuardian>(new RunGuardian(process, std::move(pipe.write)));
}

RunGuardian::~RunGuardian() {
  pipe_.reset();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void RunGuardian::tell(pid_t number) const {
  // Writes this short to a pipe are atomic.
  while (write(pipe_.get(), &number, sizeof(number)) < 0 && errno == EINTR) {
  }
}

}  // namespace thalweg::launch
