#include "cli/testbed_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"
#include "cli/system_command.h"
#include "net/atp/job_message.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr Duration kAnswerLimit = Duration::milliseconds(10'000);
constexpr Duration kEndLimit = Duration::milliseconds(10'000);
constexpr std::chrono::milliseconds kBetweenLooks{10};
constexpr const char* kNamespaces = "/run/netns/";
constexpr const char* kFolderOfRoot = "/run/thalweg/testbed";

std::string base_folder() {
  const char* given = std::getenv(TestbedPlace::kFolderVariable);
  if (given != nullptr && *given != '\0') return given;
  if (geteuid() == 0) return kFolderOfRoot;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return std::string(runtime) + "/thalweg/testbed";
  return fmt::format("/tmp/thalweg-{}/testbed", geteuid());
}

// True if it came to hold by then.
template <class Condition>
bool comes_to_hold(Condition condition, Duration patience) {
  const Time until = monotonic_now() + patience;
  while (!condition()) {
    if (monotonic_now() > until) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

// Processes whose network namespace is the file's.
std::vector<pid_t> processes_in(const std::string& path) {
  std::vector<pid_t> found;
  struct stat wanted{};
  if (stat(path.c_str(), &wanted) != 0) return found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string number = entry.path().filename();
    if (!std::ranges::all_of(number, [](unsigned char c) { return std::isdigit(c) != 0; }))
      continue;
    struct stat has{};
    if (stat(("/proc/" + number + "/ns/net").c_str(), &has) != 0) continue;
    const bool same = has.st_dev == wanted.st_dev && has.st_ino == wanted.st_ino;
    if (same && std::stoi(number) != getpid()) found.push_back(std::stoi(number));
  }
  return found;
}

Status remove_namespace(const std::string& name) {
  const std::string path = kNamespaces + name;
  const auto empty = [&] {
    const std::vector<pid_t> inside = processes_in(path);
    for (const pid_t process : inside) kill(process, SIGKILL);
    return inside.empty();
  };
  if (!comes_to_hold(empty, kEndLimit)) {
    return Error(fmt::format("programs in namespace {} do not end", name));
  }
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return ok_status();
  return system_command("ip netns delete " + name);
}

}  // namespace

Result<TestbedPlace> TestbedPlace::of(const std::string& name) {
  const auto good = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; };
  if (name.empty() || name.size() > kMaxName || !std::ranges::all_of(name, good)) {
    return Error(
        fmt::format("--name: '{}': 1 to {} letters, digits and '-' are allowed", name, kMaxName));
  }
  return TestbedPlace(name, base_folder() + "/" + name);
}

std::vector<TestbedPlace> TestbedPlace::all() {
  std::vector<TestbedPlace> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(base_folder(), ignored)) {
    Result<TestbedPlace> place = of(entry.path().filename());
    if (place.ok()) found.push_back(std::move(*place));
  }
  std::ranges::sort(found, {}, &TestbedPlace::name_);
  return found;
}

bool TestbedPlace::is_of_root() const { return folder_.starts_with(kFolderOfRoot); }

Result<Fd> TestbedPlace::occupy() const {
  std::error_code error;
  fs::create_directories(folder_, error);
  // A folder in /tmp may be there before us.
  struct stat made{};
  if (stat(folder_.c_str(), &made) != 0 || made.st_uid != geteuid()) {
    return Error(fmt::format("{} cannot be made, or is another user's", folder_));
  }
  Fd lock(open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return system_error(fmt::format("cannot make {}/lock", folder_), errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(fmt::format(
        "testbed '{}' is up already: 'thalweg testbed down --name {}' ends it, and another --name "
        "starts a second",
        name_, name_));
  }
  THALWEG_TRY_STATUS(remove_rest());
  // The folder went with the rest; ours is a new one.
  fs::create_directories(folder_, error);
  Fd fresh(open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fresh.valid() || flock(fresh.get(), LOCK_EX | LOCK_NB) != 0) {
    return system_error(fmt::format("cannot lock {}/lock", folder_), errno);
  }
  return fresh;
}

Result<Fd> TestbedPlace::listen() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket().size() >= sizeof(address.sun_path)) {
    return Error(fmt::format("the path {} is too long for a socket", socket()));
  }
  std::ranges::copy(socket(), address.sun_path);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return system_error(fmt::format("cannot listen at {}", socket()), errno);
  }
  return fd;
}

Status TestbedPlace::remember_namespace(const std::string& name) const {
  std::ofstream list(folder_ + "/namespaces", std::ios::app);
  list << name << '\n' << std::flush;
  if (list) return ok_status();
  return Error(fmt::format("cannot write {}/namespaces", folder_));
}

std::optional<pid_t> TestbedPlace::holder() const {
  const Fd lock(open((folder_ + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock.valid() || flock(lock.get(), LOCK_SH | LOCK_NB) == 0) return std::nullopt;
  const std::string text = system_setting((folder_ + "/lock").c_str());
  return text.empty() ? 0 : static_cast<pid_t>(std::atol(text.c_str()));
}

Result<Fd> TestbedPlace::connect() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket().size() < sizeof(address.sun_path)) std::ranges::copy(socket(), address.sun_path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Error(fmt::format("testbed '{}' is not up (thalweg testbed list)", name_));
  }
  return fd;
}

Result<json> TestbedPlace::ask(int connection, const json& request) {
  const std::string line = request.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  if (send(connection, line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return system_error("cannot ask the testbed", errno);
  }
  std::string answer;
  const Time until = monotonic_now() + kAnswerLimit;
  while (answer.empty() || answer.back() != '\n') {
    std::array<char, 1 << 16> block{};
    if (!wait_for_socket(connection, POLLIN, until)) return Error("the testbed does not answer");
    const ssize_t got = recv(connection, block.data(), block.size(), 0);
    if (got <= 0) return Error("the testbed ended before it answered");
    answer.append(block.data(), static_cast<std::size_t>(got));
  }
  THALWEG_TRY(json object,
              parse_control_line(std::string_view(answer).substr(0, answer.size() - 1)));
  if (object.value("ok", false)) return object;
  return Error(object.value("error", "the testbed refuses"));
}

Result<json> TestbedPlace::ask(const json& request) const {
  THALWEG_TRY(const Fd connection, connect());
  return ask(connection.get(), request);
}

Status TestbedPlace::take_down() const {
  std::error_code ignored;
  if (!fs::exists(folder_, ignored)) {
    return Error(fmt::format("there is no testbed '{}' (thalweg testbed list)", name_));
  }
  if (const auto process = holder()) {
    const Result<json> asked = ask(json{{"do", "down"}});
    const auto over = [&] { return !holder(); };
    if (!asked.ok() || !comes_to_hold(over, kEndLimit)) {
      if (*process > 0) kill(*process, SIGKILL);
      if (!comes_to_hold(over, kEndLimit)) {
        return Error(fmt::format("process {} of testbed '{}' does not end", *process, name_));
      }
    }
  }
  return remove_rest();
}

Status TestbedPlace::remove_rest() const {
  std::ifstream list(folder_ + "/namespaces");
  for (std::string name; std::getline(list, name);) THALWEG_TRY_STATUS(remove_namespace(name));
  std::error_code error;
  fs::remove_all(folder_, error);
  if (error) return Error(fmt::format("cannot remove {}: {}", folder_, error.message()));
  return ok_status();
}

}  // namespace thalweg
