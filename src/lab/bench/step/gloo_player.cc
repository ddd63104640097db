#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "lab/bench/step/player.h"
#include "lab/home.h"
#include "launch/pipe.h"
#include "launch/spawn.h"
#include "net/io/system.h"
#include "net/job/environment.h"

namespace thalweg::lab::step {
namespace {

constexpr Duration kStartLimit = Duration::milliseconds(180'000);

nlohmann::json words_of(const Schedule& schedule) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const Bucket& bucket : schedule.buckets) {
    buckets.push_back({bucket.elements, bucket.forward.s(), bucket.backward.s()});
  }
  return {{"layerwise", schedule.order == Order::kLayerwise}, {"buckets", std::move(buckets)}};
}

// The process reads a line for each turn, "WARM_UP TIMED", and answers with a line, "WRONG MS MS
// …".
class GlooPlayer final : public Player {
 public:
  GlooPlayer(pid_t process, net::Fd to, net::Fd from, Duration limit)
      : process_(process), to_(std::move(to)), from_(std::move(from)), limit_(limit) {}
  GlooPlayer(const GlooPlayer&) = delete;
  GlooPlayer& operator=(const GlooPlayer&) = delete;
  ~GlooPlayer() override {
    // The process ends at the end of its input, but its library may hang at its end.
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  [[nodiscard]] std::string version() const override { return version_; }

  Status tell(const std::string& line) const {
    std::size_t done = 0;
    while (done < line.size()) {
      const ssize_t written = write(to_.get(), line.data() + done, line.size() - done);
      if (written < 0) return Error("gloo: its process has ended; it printed why");
      done += static_cast<std::size_t>(written);
    }
    return ok_status();
  }

  Result<Turn> play(int warm_up, int timed) override {
    if (version_.empty()) {
      THALWEG_TRY(version_, hear(kStartLimit));
    }
    THALWEG_TRY_STATUS(tell(fmt::format("{} {}\n", warm_up, timed)));
    THALWEG_TRY(const std::string line, hear(limit_));
    Turn turn;
    std::istringstream words(line);
    words >> turn.wrong;
    for (int step = 0; step < timed; ++step) words >> turn.steps_ms.emplace_back();
    if (words.fail()) return Error("gloo: its process answered " + line);
    return turn;
  }

 private:
  Result<std::string> hear(Duration limit) {
    const Time deadline = net::monotonic_now() + limit;
    for (;;) {
      const std::size_t end = heard_.find('\n');
      if (end != std::string::npos) {
        std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      const Duration left = deadline - net::monotonic_now();
      pollfd ready{.fd = from_.get(), .events = POLLIN, .revents = 0};
      const int found = poll(&ready, 1, left > Duration() ? static_cast<int>(left.ms()) + 1 : 0);
      if (found < 0 && errno == EINTR) continue;
      if (found == 0) return Error(fmt::format("gloo: no answer after {}", to_string(limit)));
      std::array<char, 4096> block{};
      const ssize_t got = read(from_.get(), block.data(), block.size());
      if (got <= 0) return Error("gloo: its process has ended; it printed why");
      heard_.append(block.data(), static_cast<std::size_t>(got));
    }
  }

  pid_t process_;
  net::Fd to_;
  net::Fd from_;
  Duration limit_;  // of a turn
  std::string version_;
  std::string heard_;
};

}  // namespace

Result<std::unique_ptr<Player>> make_gloo_player(const Settings& settings) {
  const net::EnvironmentLookup lookup = net::process_environment();
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (lookup(name)) continue;
    return Error(fmt::format(
        "gloo: {} is not set, so its ranks cannot meet: start the job by thalweg run or torchrun",
        name));
  }
  const std::string script = home_folder() + "/bench/step/gloo_rank.py";
  std::error_code ignored;
  if (!std::filesystem::exists(script, ignored)) {
    return Error(
        fmt::format("gloo: there is no {} (THALWEG_HOME names the folder of Thalweg)", script));
  }
  THALWEG_TRY(const net::Environment job, net::environment_from(lookup));
  std::signal(SIGPIPE, SIG_IGN);  // an error of write() instead, where the process has ended
  THALWEG_TRY(launch::Pipe in, launch::Pipe::make());
  THALWEG_TRY(launch::Pipe out, launch::Pipe::make());
  THALWEG_TRY(const pid_t process,
              launch::spawn({.command = {python_interpreter(), script},
                             .environment = {fmt::format("RANK={}", job.rank),
                                             fmt::format("WORLD_SIZE={}", job.size),
                                             // Hosts of a testbed have no names to warn about.
                                             "TORCH_CPP_LOG_LEVEL=ERROR"},
                             .in = in.read.get(),
                             .out = out.write.get()}));
  auto player = std::make_unique<GlooPlayer>(process, std::move(in.write), std::move(out.read),
                                             settings.timeout);
  THALWEG_TRY_STATUS(player->tell(words_of(settings.schedule).dump() + "\n"));
  return std::unique_ptr<Player>(std::move(player));
}

}  // namespace thalweg::lab::step
