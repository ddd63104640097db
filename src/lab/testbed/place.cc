#include "lab/testbed/place.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lab/files.h"
#include "launch/system_command.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr Duration kTestbedAnswerLimit = Duration::milliseconds(10'000);
constexpr Duration kEndLimit = Duration::milliseconds(10'000);
constexpr std::chrono::milliseconds kBetweenLooks{10};
constexpr int kLockAttempts = 100;
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

// Waits until the condition holds. Returns false if it does not within `patience`.
template <class Condition>
bool comes_to_hold(Condition condition, Duration patience) {
  const Time until = net::monotonic_now() + patience;
  while (!condition()) {
    if (net::monotonic_now() > until) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

// The processes whose network namespace is the one at `path`.
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
  return launch::system_command("ip netns delete " + name);
}

}  // namespace

Result<TestbedPlace> TestbedPlace::of(const std::string& name) {
  const auto good = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; };
  if (name.empty() || name.size() > kMaxName || !std::ranges::all_of(name, good)) {
    return Error(
        fmt::format("--name: '{}': 1 to {} letters, digits and '-' are allowed", name, kMaxName));
  }
  return TestbedPlace(name, base_folder() + "/" + name, geteuid() == 0);
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

// A process that removes the folder holds its lock. So a lock counts only if its file is still
// there after it was taken.
Result<net::Fd> TestbedPlace::lock() const {
  const std::string path = folder_ + "/lock";
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    std::error_code error;
    fs::create_directories(folder_, error);
    // Another user may have made a folder in /tmp before us.
    struct stat made{};
    if (stat(folder_.c_str(), &made) != 0 || made.st_uid != geteuid() ||
        chmod(folder_.c_str(), S_IRWXU) != 0) {
      return Error(fmt::format("{} cannot be made, or is another user's", folder_));
    }
    net::Fd held(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!held.valid()) {
      if (errno == ENOENT) continue;
      return net::system_error(fmt::format("cannot make {}", path), errno);
    }
    if (flock(held.get(), LOCK_EX | LOCK_NB) != 0) return net::Fd();
    struct stat ours{};
    struct stat there{};
    if (fstat(held.get(), &ours) == 0 && stat(path.c_str(), &there) == 0 &&
        ours.st_ino == there.st_ino && ours.st_dev == there.st_dev) {
      return held;
    }
  }
  return Error(fmt::format("{} comes and goes", path));
}

Result<net::Fd> TestbedPlace::occupy() const {
  THALWEG_TRY(net::Fd held, lock());
  if (!held.valid()) {
    return Error(fmt::format(
        "testbed '{}' is up already: 'thalweg testbed down --name {}' ends it, and another --name "
        "starts a second",
        name_, name_));
  }
  // The process that held the lock is gone, and another may have its number by now.
  if (ftruncate(held.get(), 0) != 0)
    return net::system_error("cannot write " + folder_ + "/lock", errno);
  THALWEG_TRY_STATUS(remove_namespaces());
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename() != "lock") fs::remove_all(entry.path(), error);
    if (error)
      return Error(fmt::format("cannot remove {}: {}", entry.path().string(), error.message()));
  }
  return held;
}

Result<net::Fd> TestbedPlace::listen() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket().size() >= sizeof(address.sun_path)) {
    return Error(fmt::format("the path {} is too long for a socket", socket()));
  }
  std::ranges::copy(socket(), address.sun_path);
  net::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return net::system_error(fmt::format("cannot listen at {}", socket()), errno);
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
  const net::Fd lock(open((folder_ + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock.valid() || flock(lock.get(), LOCK_SH | LOCK_NB) == 0) return std::nullopt;
  const std::string text = system_setting((folder_ + "/lock").c_str());
  return text.empty() ? 0 : static_cast<pid_t>(std::atol(text.c_str()));
}

Result<net::ControlConnection> TestbedPlace::connect() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  net::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket().size() < sizeof(address.sun_path)) std::ranges::copy(socket(), address.sun_path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EAGAIN) {
      return Error(fmt::format("testbed '{}' has too many clients at once", name_));
    }
    return Error(fmt::format("testbed '{}' is not up (thalweg testbed list)", name_));
  }
  return net::ControlConnection(std::move(fd), fmt::format("testbed '{}'", name_));
}

Result<json> TestbedPlace::ask(net::ControlConnection& connection, const json& request) {
  return connection.ask(request, net::monotonic_now() + kTestbedAnswerLimit);
}

Result<json> TestbedPlace::ask(const json& request) const {
  THALWEG_TRY(net::ControlConnection connection, connect());
  return ask(connection, request);
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
  if (!fs::exists(folder_, ignored)) return ok_status();
  THALWEG_TRY(const net::Fd held, lock());
  if (!held.valid()) return Error(fmt::format("testbed '{}' has just been brought up", name_));
  return remove_rest();
}

Status TestbedPlace::remove_namespaces() const {
  std::ifstream list(folder_ + "/namespaces");
  for (std::string name; std::getline(list, name);) THALWEG_TRY_STATUS(remove_namespace(name));
  return ok_status();
}

Status TestbedPlace::remove_rest() const {
  THALWEG_TRY_STATUS(remove_namespaces());
  std::error_code error;
  fs::remove_all(folder_, error);
  if (error) return Error(fmt::format("cannot remove {}: {}", folder_, error.message()));
  return ok_status();
}

}  // namespace thalweg::lab
