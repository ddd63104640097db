// Sealed frames and bytes on a stream that somebody changes: a receiver opens what was sealed, in
// order, up to the first change, and nothing after it. Bytes that nobody sealed open nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "wire/sealed_bytes.h"
#include "wire/sealed_frame.h"

namespace thalweg::wire {
namespace {

constexpr std::uint64_t kFewRecords = 4;  // for each key, so that keys change

StreamSecret fuzz_secret() {
  StreamSecret secret;
  secret.fill(std::byte{0x5a});
  return secret;
}

struct Sent {
  SealedHeader header;
  std::vector<std::byte> plain;
  std::vector<std::byte> payload;
};

std::vector<Sent> seal_frames(Input& in) {
  FrameSealer sealer(fuzz_secret(), kFewRecords);
  std::vector<Sent> frames(1 + in.byte() % 8);
  for (Sent& frame : frames) {
    frame.plain.assign(in.byte() % 100, static_cast<std::byte>(in.byte()));
    frame.payload.resize(frame.plain.size());
    FrameSealer::Ticket ticket = sealer.next();
    if (!frame.plain.empty()) sealer.seal_payload(ticket, frame.plain, frame.payload);
    frame.header = sealer.seal_header(
        std::move(ticket),
        {.kind = FrameKind::kAbort, .length = static_cast<std::uint32_t>(frame.plain.size())});
  }
  return frames;
}

// Whether the receiver takes the frame as the one that is due. It may come in pieces.
bool opens(FrameOpener& opener, const Sent& frame, Input& in) {
  Frame header;
  const WireError error = opener.open_header(frame.header, header);
  if (error == WireError::kChecksum) return false;
  CHECK(error == WireError::kNone && header.kind == FrameKind::kAbort);
  if (header.length == 0) return frame.payload.empty();
  if (header.length != frame.payload.size()) return false;
  std::vector<std::byte> out(frame.payload.size());
  for (std::size_t at = 0; at < out.size();) {
    const std::size_t size = std::min<std::size_t>(out.size() - at, 1 + in.byte() % 40);
    opener.open_payload(std::span(frame.payload).subspan(at, size),
                        std::span(out).subspan(at, size));
    at += size;
  }
  if (!opener.end_payload()) return false;
  CHECK(out == frame.plain);
  return true;
}

void change_frames(Input& in) {
  std::vector<Sent> frames = seal_frames(in);
  const std::vector<Sent> as_sealed = frames;
  const std::size_t at = in.byte() % frames.size();
  const std::size_t other = in.byte() % frames.size();
  switch (in.byte() % 6) {
    case 0:
      break;  // nothing
    case 1:
      frames[at].header[in.byte() % kSealedFrameSize] ^= std::byte{1} << (in.byte() % 8);
      break;
    case 2:
      if (!frames[at].payload.empty()) {
        frames[at].payload[in.byte() % frames[at].payload.size()] ^= std::byte{1}
                                                                     << (in.byte() % 8);
      }
      break;
    case 3:
      frames.insert(frames.begin() + static_cast<std::ptrdiff_t>(at), frames[other]);
      break;
    case 4:
      frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    default:
      std::swap(frames[at].payload, frames[other].payload);
      break;
  }
  FrameOpener opener(fuzz_secret(), kFewRecords);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const bool is_due = i < as_sealed.size() && frames[i].header == as_sealed[i].header &&
                        frames[i].payload == as_sealed[i].payload;
    CHECK(opens(opener, frames[i], in) == is_due);
    if (!is_due) return;
  }
}

void open_nonsense(std::span<const std::byte> bytes) {
  FrameOpener frames(fuzz_secret());
  Frame frame;
  if (bytes.size() >= kSealedFrameSize) {
    CHECK(frames.open_header(bytes.first<kSealedFrameSize>(), frame) == WireError::kChecksum);
  }
  BytesOpener opener(fuzz_secret());
  std::vector<std::byte> out;
  std::span<const std::byte> left = bytes;
  const WireError error = opener.open(left, out);
  CHECK(out.empty() && left.size() == bytes.size());
  CHECK(bytes.empty() == (error == WireError::kNone));
}

}  // namespace
}  // namespace thalweg::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  thalweg::Input in(data, size);
  thalweg::wire::change_frames(in);
  thalweg::wire::open_nonsense(std::as_bytes(std::span(data, size)));
  return 0;
}
