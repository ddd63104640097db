#include "net/group/shm/shared_rings.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <new>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "net/io/system.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace thalweg::net {
namespace {

// The file holds the states of both rings, then the bytes of each ring.
constexpr std::size_t kStateBytes = 4096;
static_assert(2 * sizeof(RingState) <= kStateBytes);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static_assert(kRingBytes >= kLeastRingBytes && kRingBytes <= kMostRingBytes);

bool allowed(std::size_t ring_bytes) {
  return std::has_single_bit(ring_bytes) && ring_bytes >= kLeastRingBytes &&
         ring_bytes <= kMostRingBytes;
}

std::string name_of_label(std::uint64_t label) { return fmt::format("thalweg-{:016x}", label); }

std::size_t mapped_bytes(std::size_t ring_bytes) { return kStateBytes + 4 * ring_bytes; }

Result<Fd> make_file(const std::string& name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd file(memfd_create(name.c_str(), kFlags | MFD_NOEXEC_SEAL));
  // Kernels before 6.3 do not know that seal.
  if (!file.valid() && errno == EINVAL) file = Fd(memfd_create(name.c_str(), kFlags));
  if (!file.valid()) return system_error("cannot make shared memory", errno);
  return file;
}

}  // namespace

RingMemory SharedRings::Mapping::ring(int index) const {
  auto* states = reinterpret_cast<RingState*>(start);
  return {states + index, start + kStateBytes + (index == 0 ? 0 : 2 * ring_bytes), ring_bytes};
}

Result<SharedRings::Mapping> SharedRings::map(const Fd& file, std::size_t ring_bytes) {
  void* const area =
      mmap(nullptr, mapped_bytes(ring_bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return system_error("cannot map shared memory", errno);
  auto* const start = static_cast<std::byte*>(area);
  const auto place = [&](std::size_t at, std::size_t size, std::size_t offset, int flags) {
    return mmap(start + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | flags,
                file.get(), static_cast<off_t>(offset)) != MAP_FAILED;
  };
  std::size_t at = kStateBytes;
  bool good = place(0, kStateBytes, 0, MAP_POPULATE);
  for (const std::size_t ring : {0U, 1U}) {
    // The second mapping is used only for bytes beyond the ring's end, which is rare.
    for (const int flags : {MAP_POPULATE, 0}) {
      good = good && place(at, ring_bytes, kStateBytes + ring * ring_bytes, flags);
      at += ring_bytes;
    }
  }
  if (!good) {
    const int error = errno;
    munmap(area, mapped_bytes(ring_bytes));
    return system_error("cannot map shared memory", error);
  }
  return Mapping{start, ring_bytes};
}

SharedRings::SharedRings(Fd file, std::uint64_t label, const Mapping& mapping, bool maker)
    : file_(std::move(file)),
      label_(label),
      mapping_(mapping),
      in_(mapping.ring(maker ? 0 : 1)),
      out_(mapping.ring(maker ? 1 : 0)) {}

SharedRings::~SharedRings() { munmap(mapping_.start, mapped_bytes(mapping_.ring_bytes)); }

Result<std::unique_ptr<SharedRings>> SharedRings::make(std::size_t ring_bytes) {
  CHECK(allowed(ring_bytes), "{} bytes", ring_bytes);
  const std::uint64_t label = random_number();
  THALWEG_TRY(Fd file, make_file(name_of_label(label)));
  // Allocates everything now. If memory were missing later, an access would kill the process.
  const int error =
      posix_fallocate(file.get(), 0, static_cast<off_t>(kStateBytes + 2 * ring_bytes));
  if (error != 0) return system_error("cannot allocate shared memory", error);
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return system_error("cannot seal shared memory", errno);
  }
  THALWEG_TRY(const Mapping mapping, map(file, ring_bytes));
  new (mapping.ring(0).state) RingState;
  new (mapping.ring(1).state) RingState;
  return std::unique_ptr<SharedRings>(new SharedRings(std::move(file), label, mapping, true));
}

Result<std::unique_ptr<SharedRings>> SharedRings::open(const Offer& offer) {
  const std::string path = fmt::format("/proc/{}/fd/{}", offer.pid, offer.fd);
  std::array<char, 64> target{};
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  if (size < 0) return system_error(fmt::format("cannot look at {}", path), errno);
  const std::string_view found(target.data(), static_cast<std::size_t>(size));
  if (found != fmt::format("/memfd:{} (deleted)", name_of_label(offer.label))) {
    return Error(fmt::format("{} is not what was offered", path));
  }
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return system_error(fmt::format("cannot open {}", path), errno);
  struct stat status{};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (fstat(file.get(), &status) != 0 || seals < 0 || (seals & kSeals) != kSeals) {
    return Error(fmt::format("{} is not sealed", path));
  }
  const auto bytes = static_cast<std::size_t>(status.st_size);
  const std::size_t ring_bytes = (bytes - std::min(bytes, kStateBytes)) / 2;
  if (!allowed(ring_bytes) || bytes != kStateBytes + 2 * ring_bytes) {
    return Error(fmt::format("{} has {} bytes, which cannot be two rings", path, bytes));
  }
  THALWEG_TRY(const Mapping mapping, map(file, ring_bytes));
  return std::unique_ptr<SharedRings>(new SharedRings(Fd(), offer.label, mapping, false));
}

SharedRings::Offer SharedRings::offer() const {
  CHECK(file_.valid());
  return {static_cast<std::uint32_t>(getpid()), static_cast<std::uint32_t>(file_.get()), label_};
}

}  // namespace thalweg::net
