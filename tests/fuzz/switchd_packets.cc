// Gives a switch's data plane packets from the members of two jobs, one of them sealed, and from a
// stranger. The plane may only count drops and send packets that decode; and once no more packets
// arrive and the lifetime has passed, no slot may be in use.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "switchd/data_plane.h"

namespace thalweg::switchd {
namespace {

class CheckedOutput final : public DataPlane::Output {
 public:
  std::span<std::byte> to_server(std::uint32_t /*job*/, std::uint64_t /*sequence*/,
                                 std::uint32_t /*path*/, std::size_t size) override {
    return room(size);
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, const Receivers& /*receivers*/,
                                  std::uint32_t /*path*/, std::size_t size) override {
    return room(size);
  }
  void check() {
    wire::AtpHeader header;
    CHECK(bytes_.empty() || decode_atp_header(bytes_, header) == wire::WireError::kNone);
    bytes_.clear();
  }

 private:
  std::span<std::byte> room(std::size_t size) {
    check();
    bytes_.resize(size);
    return bytes_;
  }
  std::vector<std::byte> bytes_;
};

net::SocketAddress end(int i) {
  return net::SocketAddress::resolve("127.0.0.1:" + std::to_string(9000 + i)).value();
}

void run(std::span<const std::byte> input) {
  constexpr int kEnds = 4;  // two workers, a server, a stranger
  constexpr Duration kLifetime = Duration::milliseconds(10);
  CheckedOutput output;
  DataPlane plane({.slots = 4, .slot_elements = 8, .lifetime = kLifetime}, 0, output);
  for (const std::uint32_t id : {1U, 2U}) {
    AdmittedJob job;
    job.id = id;
    job.workers = {end(0), end(1)};
    job.servers = {end(2)};
    job.about.groups = 3;
    job.about.second_level = true;
    if (id == 2) job.key = wire::JobKey({});
    CHECK(plane.install(job).ok());
  }
  Time now;
  while (input.size() > 2) {
    const auto from = std::to_integer<int>(input[0]) % kEnds;
    const std::size_t size =
        std::min<std::size_t>(std::to_integer<std::size_t>(input[1]), input.size() - 2);
    // Every other packet gets the right header check, so that its fields are looked at.
    std::vector<std::byte> packet(size);
    std::ranges::copy(input.subspan(2, size), packet.begin());
    if (size >= wire::kAtpHeaderSize && (std::to_integer<int>(input[0]) & 0x80) != 0) {
      wire::put_atp_header_check(packet);
    }
    plane.on_run({packet, std::max<std::size_t>(size, 1), false}, end(from), now);
    now += Duration::microseconds(1);
    input = input.subspan(2 + size);
  }
  output.check();
  plane.on_tick(now + kLifetime);
  CHECK(plane.table().slots_in_use() == 0);
}

}  // namespace
}  // namespace thalweg::switchd

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::switchd::run(std::as_bytes(std::span(data, size)));
  return 0;
}
