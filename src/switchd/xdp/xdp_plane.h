// The loader of the XDP data plane (atp_switch.bpf.c): sums are made in the kernel, on the way
// through the network card's driver. Needs root (CAP_BPF, CAP_NET_ADMIN). For one thread.
//
// It takes what is small and unsealed of jobs over IPv4; everything else reaches the process's
// sockets as if it were not there, and is handled the same way by DataPlane.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"
#include "switchd/controller.h"

namespace thalweg {

struct XdpOptions {
  std::uint32_t slots = 4096;
  SocketAddress data;  // of the first shard, IPv4
  int shards = 1;
  Duration lifetime = Duration::milliseconds(1'000);  // as AggregateOptions
  // Set: everything goes to this Ethernet address, by the device it came from. None: as the
  // system's routes say.
  std::optional<std::array<std::uint8_t, 6>> next_hop;
};

class XdpPlane {
 public:
  [[nodiscard]] static Result<std::unique_ptr<XdpPlane>> load(const XdpOptions& options);
  // Detaches.
  ~XdpPlane();
  XdpPlane(const XdpPlane&) = delete;
  XdpPlane& operator=(const XdpPlane&) = delete;

  // In the driver where it can and may, otherwise behind it.
  [[nodiscard]] Status attach(const std::string& device, bool generic);
  // Does nothing for a job that is not for it.
  [[nodiscard]] Status install(const AdmittedJob& job);
  void remove(std::uint32_t id);
  // By the names of AggregateAction::Cause; empty for a job that is not for it.
  [[nodiscard]] SwitchPlane::Counters counters(std::uint32_t id) const;
  // Adds what passed here to the ports of a job: its workers, then its servers.
  void add_traffic(const AdmittedJob& job, std::vector<SwitchPlane::Port>& ports) const;

  enum class Verdict : std::uint8_t { kDropped, kToProcess, kSent };
  struct Outcome {
    Verdict verdict = Verdict::kDropped;
    std::size_t size = 0;  // of what is in `out`
    std::chrono::nanoseconds duration{};
  };
  // Runs the program on one Ethernet frame without sending anything: for tests and benchmarks.
  [[nodiscard]] Result<Outcome> run(std::span<const std::byte> frame,
                                    std::span<std::byte> out) const;

 private:
  class Core;
  explicit XdpPlane(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
