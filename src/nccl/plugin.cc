#include "nccl/plugin.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "nccl/log.h"
#include "net/io/system.h"

namespace thalweg::nccl {
namespace {

Result<Connection::Options> options_of(const Settings& settings, const std::string& peer) {
  THALWEG_TRY(auto pool, WorkerPool::share(settings.threads, settings.spin));
  return Connection::Options{.peer = peer,
                             .pool = std::move(pool),
                             .inline_bytes = settings.inline_bytes,
                             .piece_bytes = settings.piece_bytes};
}

// NCCL does not write to the strings, but its structure does not say so.
char* text_of(const std::string& text) {
  return text.empty() ? nullptr : const_cast<char*>(text.c_str());
}

}  // namespace

Result<Handle> handle_of_other(std::span<const std::byte, kNcclHandleSize> bytes) {
  auto decoded = decode_handle(bytes);
  if (const auto* const error = std::get_if<GreetingError>(&decoded)) {
    return Error(ErrorCode::kMismatch,
                 *error == GreetingError::kVersion
                     ? "the other rank has another version of the plugin: install one version of "
                       "Thalweg on all hosts"
                     : "the other rank does not use the Thalweg plugin: set "
                       "NCCL_NET_PLUGIN=thalweg on all ranks, and see why NCCL did not load it "
                       "there (NCCL_DEBUG=INFO)");
  }
  return std::get<Handle>(decoded);
}

Plugin& Plugin::instance() {
  // Never destroyed: a process may end while NCCL still calls.
  static auto& plugin = *new Plugin;
  return plugin;
}

Status Plugin::init() {
  THALWEG_TRY(Settings read, settings_from(net::process_environment()));
  const auto next = std::make_shared<const Settings>(std::move(read));
  std::string names;
  for (const Device& device : next->devices) {
    names += fmt::format(" {} ({})", device.name, device.address.host());
  }
  log_info(
      fmt::format("interfaces:{}; {} streams a connection, {} threads, NCCL's own sends up to "
                  "{} bytes, pieces from {} bytes{}",
                  names, next->streams, next->threads, next->inline_bytes, next->piece_bytes,
                  next->key ? ", with a job key" : ""));
  const std::lock_guard lock(mutex_);
  settings_ = next;
  return ok_status();
}

void Plugin::finalize() {
  const Time now = net::monotonic_now();
  const std::lock_guard lock(mutex_);
  std::erase_if(attempts_, [now](const auto& entry) { return entry.second->until() < now; });
}

Result<std::shared_ptr<const Settings>> Plugin::settings() {
  const std::lock_guard lock(mutex_);
  if (settings_ == nullptr) return Error(ErrorCode::kInternal, "NCCL did not call init() first");
  return settings_;
}

Result<std::pair<std::shared_ptr<const Settings>, const Device*>> Plugin::device(int number) {
  THALWEG_TRY(auto all, settings());
  if (number < 0 || static_cast<std::size_t>(number) >= all->devices.size()) {
    return Error(ErrorCode::kInternal,
                 fmt::format("NCCL asks for device {}; there are {}", number, all->devices.size()));
  }
  const Device* const device = &all->devices[static_cast<std::size_t>(number)];
  return std::pair(std::move(all), device);
}

Result<int> Plugin::device_count() {
  THALWEG_TRY(const auto all, settings());
  return static_cast<int>(all->devices.size());
}

Result<PropertiesV11> Plugin::properties(int number) {
  constexpr int kMostConnections = 1 << 16;
  THALWEG_TRY(const auto found, device(number));
  const Device& card = *found.second;
  PropertiesV11 out = {};
  out.common.name = text_of(card.name);
  out.common.pci_path = text_of(card.pci_path);
  out.common.guid = static_cast<std::uint64_t>(number);
  out.common.pointers = kNcclPointerHost;
  out.common.speed_mbps = card.speed_mbps;
  out.common.max_connections = kMostConnections;
  out.common.max_receives = 1;
  out.common.parts = {.count = 1, .devices = {number}};
  out.common.max_p2p_bytes = kNcclMaxMessage;
  out.common.max_collective_bytes = kNcclMaxMessage;
  out.max_multi_request = 1;
  return out;
}

Result<std::unique_ptr<Listener>> Plugin::listen(int number) {
  THALWEG_TRY(const auto found, device(number));
  return Listener::start(*found.second, *found.first);
}

std::unique_ptr<Dial> Plugin::take_attempt(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto entry = attempts_.extract(number);
  return entry.empty() ? nullptr : std::move(entry.mapped());
}

Result<std::unique_ptr<SendConnection>> Plugin::connect(
    int number, std::span<std::byte, kNcclHandleSize> bytes) {
  THALWEG_TRY(Handle handle, handle_of_other(bytes));
  THALWEG_TRY(const auto found, device(number));
  const Time now = net::monotonic_now();
  std::unique_ptr<Dial> dial = handle.attempt == 0 ? nullptr : take_attempt(handle.attempt);
  if (dial == nullptr) {
    handle.attempt = 0;
    THALWEG_TRY(dial, Dial::start(handle, *found.first, *found.second, now));
  }
  THALWEG_TRY(std::optional<Streams> streams, dial->advance(now));
  if (streams) {
    THALWEG_TRY(auto options, options_of(*found.first, streams->peer));
    return std::make_unique<SendConnection>(std::move(streams->fds), std::move(options));
  }
  const std::lock_guard lock(mutex_);
  if (handle.attempt == 0) handle.attempt = ++last_attempt_;
  attempts_.emplace(handle.attempt, std::move(dial));
  std::ranges::copy(encode_handle(handle), bytes.begin());
  return std::unique_ptr<SendConnection>();
}

Result<std::unique_ptr<ReceiveConnection>> Plugin::accept(Listener& listener) {
  THALWEG_TRY(const auto all, settings());
  THALWEG_TRY(std::optional<Streams> streams, listener.advance(net::monotonic_now()));
  if (!streams) return std::unique_ptr<ReceiveConnection>();
  THALWEG_TRY(auto options, options_of(*all, streams->peer));
  return std::make_unique<ReceiveConnection>(std::move(streams->fds), std::move(options));
}

}  // namespace thalweg::nccl
