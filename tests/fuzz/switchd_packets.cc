// Packets from the ends of two jobs, one of them sealed, and from a stranger, into a switch's data
// plane: nothing but counted drops and packets that decode; and when all is quiet, no slot is held.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "switchd/data_plane.h"

namespace thalweg {
namespace {

class CheckedOutput final : public DataPlane::Output {
 public:
  std::span<std::byte> to_server(std::uint32_t /*job*/, std::uint64_t /*sequence*/,
                                 std::size_t size) override {
    return room(size);
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, std::optional<std::size_t> /*worker*/,
                                  std::size_t size) override {
    return room(size);
  }
  void check() {
    AtpHeader header;
    CHECK(bytes_.empty() || decode_atp_header(bytes_, header) == WireError::kNone);
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

SocketAddress end(int i) {
  return SocketAddress::resolve("127.0.0.1:" + std::to_string(9000 + i)).value();
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
    if (id == 2) job.key = JobKey({});
    CHECK(plane.install(job).ok());
  }
  Time now;
  while (input.size() > 2) {
    const auto from = std::to_integer<int>(input[0]) % kEnds;
    const std::size_t size =
        std::min<std::size_t>(std::to_integer<std::size_t>(input[1]), input.size() - 2);
    plane.on_run({input.subspan(2, size), std::max<std::size_t>(size, 1), false}, end(from), now);
    now += Duration::microseconds(1);
    input = input.subspan(2 + size);
  }
  output.check();
  plane.on_tick(now + kLifetime);
  CHECK(plane.table().slots_in_use() == 0);
}

}  // namespace
}  // namespace thalweg

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::run(std::as_bytes(std::span(data, size)));
  return 0;
}
