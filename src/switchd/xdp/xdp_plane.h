// XdpPlane: the loader of the XDP data plane (atp_switch.bpf.c), which adds gradients in the kernel
// while packets are in the network card's driver. Needs root (CAP_BPF, CAP_NET_ADMIN). One thread
// uses it.
//
// The data plane handles small, unsealed packets of jobs over IPv4 that have no slot limit. All
// other packets reach the process's sockets as if it were not there, and DataPlane handles them the
// same way.
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
#include "net/io/address.h"
#include "switchd/controller.h"

namespace thalweg::switchd {

struct XdpOptions {
  std::uint32_t slots = 4096;
  net::SocketAddress data;  // the first shard's data address, IPv4
  int shards = 1;
  Duration lifetime = Duration::milliseconds(1'000);  // as in AggregateOptions
  // If set, every packet goes to this Ethernet address, through the device that it came from.
  // Otherwise the system's routes decide.
  std::optional<std::array<std::uint8_t, 6>> next_hop;
};

class XdpPlane {
 public:
  [[nodiscard]] static Result<std::unique_ptr<XdpPlane>> load(const XdpOptions& options);
  // Detaches from all devices.
  ~XdpPlane();
  XdpPlane(const XdpPlane&) = delete;
  XdpPlane& operator=(const XdpPlane&) = delete;

  // Attaches the program to a device: in its driver if the driver supports that and `generic` is
  // not set, otherwise behind the driver.
  [[nodiscard]] Status attach(const std::string& device, bool generic);
  // Does nothing for a job that the data plane does not handle.
  [[nodiscard]] Status install(const AdmittedJob& job);
  void remove(std::uint32_t id);
  // The counters of a job, by the names of AggregateAction::Cause; empty for a job that the data
  // plane does not handle.
  [[nodiscard]] SwitchPlane::Counters counters(std::uint32_t id) const;
  // Adds the packets handled here to a job's ports: its workers, then its servers.
  void add_traffic(const AdmittedJob& job, std::vector<SwitchPlane::Port>& ports) const;

  enum class Verdict : std::uint8_t { kDropped, kToProcess, kSent };
  struct Outcome {
    Verdict verdict = Verdict::kDropped;
    std::size_t size = 0;  // bytes written to `out`
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

}  // namespace thalweg::switchd
