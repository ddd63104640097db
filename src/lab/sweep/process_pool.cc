#include "lab/sweep/process_pool.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "lab/sweep/mpi_ranks.h"
#include "lab/terminal.h"

namespace thalweg::lab {
namespace {

constexpr std::size_t kReadBytes = 65'536;
constexpr int kMostWaitMs = 200;  // before progress is shown again
constexpr char kDone = '+';
constexpr char kPieceFailed = '-';

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the parent is gone
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A running piece: its process, and the pipe through which its text comes.
struct Child {
  std::size_t piece = 0;
  pid_t process = 0;
  int pipe = -1;
  std::string text;
};

// The child processes of this rank.
class Pool {
 public:
  Pool(const ProcessPoolOptions& options,
       const std::function<Result<std::string>(std::size_t)>& work)
      : options_(options), work_(work) {}
  ~Pool() {
    for (const Child& child : children_) {
      kill(child.process, SIGKILL);
      waitpid(child.process, nullptr, 0);
      close(child.pipe);
    }
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] std::size_t running() const { return children_.size(); }
  [[nodiscard]] long peak_memory_kib() const { return peak_memory_kib_; }
  Status start(std::size_t piece);
  // Waits for a moment, or until a piece says something. Calls done(piece, text) for those that
  // have ended.
  template <class Done>
  Status wait(Done done);

 private:
  Result<std::string> finish(Child& child);

  const ProcessPoolOptions& options_;
  const std::function<Result<std::string>(std::size_t)>& work_;
  std::vector<Child> children_;
  long peak_memory_kib_ = 0;
};

Status Pool::start(std::size_t piece) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return Error(fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) {
    close(ends[0]);
    close(ends[1]);
    return Error(fmt::format("fork: {}", std::strerror(errno)));
  }
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(ends[0]);
    const Result<std::string> result = work_(piece);
    write_all(ends[1], std::string(1, result.ok() ? kDone : kPieceFailed));
    write_all(ends[1], result.ok() ? *result : result.error().message());
    _exit(0);
  }
  close(ends[1]);
  children_.push_back({.piece = piece, .process = process, .pipe = ends[0], .text = {}});
  return ok_status();
}

// Called when the pipe of the piece is at its end: returns the text of the piece.
Result<std::string> Pool::finish(Child& child) {
  close(child.pipe);
  int status = 0;
  rusage usage{};
  while (wait4(child.process, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  peak_memory_kib_ = std::max(peak_memory_kib_, usage.ru_maxrss);
  const std::string name = options_.name ? options_.name(child.piece) : "";
  if (WIFSIGNALED(status)) {
    return Error(fmt::format("{}: its process was ended by signal {}{}", name, WTERMSIG(status),
                             WTERMSIG(status) == SIGKILL ? " (out of memory?)" : ""));
  }
  if (child.text.empty()) return Error(name + ": its process ended without a result");
  std::string text = child.text.substr(1);
  if (child.text.front() == kPieceFailed) return Error(std::move(text)).within(name);
  return text;
}

template <class Done>
Status Pool::wait(Done done) {
  std::vector<pollfd> files;
  files.reserve(children_.size());
  for (const Child& child : children_) files.push_back({child.pipe, POLLIN, 0});
  if (poll(files.data(), files.size(), kMostWaitMs) < 0 && errno != EINTR) {
    return Error(fmt::format("poll: {}", std::strerror(errno)));
  }
  std::string buffer(kReadBytes, '\0');
  for (std::size_t i = files.size(); i-- > 0;) {
    if (files[i].revents == 0) continue;
    Child& child = children_[i];
    const ssize_t got = read(child.pipe, buffer.data(), buffer.size());
    if (got > 0) {
      child.text.append(buffer, 0, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    const std::size_t piece = child.piece;
    Result<std::string> text = finish(child);
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!text.ok()) return text.error();
    done(piece, std::move(*text));
  }
  return ok_status();
}

}  // namespace

Result<std::optional<ProcessPoolResult>> run_in_processes(
    std::size_t count, const ProcessPoolOptions& options,
    const std::function<Result<std::string>(std::size_t)>& work) {
  const MpiRanks ranks = mpi_ranks();
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int chosen = options.at_once > 0 ? options.at_once : ranks.count > 1 ? 1 : cores;
  const auto at_once = static_cast<std::size_t>(chosen);

  ProcessPoolResult result;
  result.texts.resize(count);
  Pool pool(options, work);
  Progress progress;
  std::size_t ended = 0;
  std::size_t mine = 0;
  for (std::size_t i = ranks.rank; i < count; i += ranks.count) ++mine;
  // Pieces are dealt to the ranks in turn: rank r has the pieces r, r + count, …
  for (std::size_t next = ranks.rank; next < count || pool.running() > 0;) {
    if (next < count && pool.running() < at_once) {
      THALWEG_TRY_STATUS(pool.start(next));
      next += ranks.count;
      continue;
    }
    THALWEG_TRY_STATUS(pool.wait([&](std::size_t piece, std::string text) {
      result.texts[piece] = std::move(text);
      ++ended;
    }));
    progress.show(fmt::format("{}{}{} of {} points done, {} running", options.title,
                              options.title.empty() ? "" : ": ", ended, mine, pool.running()),
                  static_cast<double>(ended) / static_cast<double>(mine));
  }
  result.peak_memory_kib = pool.peak_memory_kib();
  if (ranks.count == 1) return std::optional(std::move(result));
  THALWEG_TRY_STATUS(gather_texts(ranks, result.texts));
  if (ranks.rank != 0) return std::optional<ProcessPoolResult>();
  return std::optional(std::move(result));
}

}  // namespace thalweg::lab
