#include "scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "topology/format/text.h"

namespace thalweg {
namespace {

std::vector<std::string_view> split(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (std::size_t at = line.find_first_not_of(kBlanks); at != std::string_view::npos;
       at = line.find_first_not_of(kBlanks, at)) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

Result<Duration> parse_start(std::string_view text) {
  constexpr double kMostUs = 1e9;
  double us = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), us);
  if (code != std::errc() || end != text.data() + text.size() || us < 0 || us > kMostUs) {
    return Error(fmt::format("start_us is '{}'; allowed: 0 to {}", text, kMostUs));
  }
  return Duration::seconds(us * 1e-6);
}

// The flow of a line; nothing for a line without words.
Result<std::optional<PeerFlow>> parse_line(std::string_view line, int host_count) {
  const std::vector<std::string_view> words = split(line);
  if (words.empty()) return std::optional<PeerFlow>();
  if (words.size() != 4 && words.size() != 5) {
    return Error(fmt::format("{} words; allowed: src dst bytes start_us [spine]", words.size()));
  }
  THALWEG_TRY(const std::int64_t source, topology::parse_whole("src", words[0], 0, host_count - 1));
  THALWEG_TRY(const std::int64_t target, topology::parse_whole("dst", words[1], 0, host_count - 1));
  THALWEG_TRY(const std::int64_t bytes, topology::parse_whole("bytes", words[2], 1, kMaxFlowBytes));
  THALWEG_TRY(const Duration start, parse_start(words[3]));
  std::int64_t path = 0;
  if (words.size() == 5) {
    THALWEG_TRY(path, topology::parse_whole("spine", words[4], 0, kMaxPaths - 1));
  }
  if (source == target) return Error(fmt::format("a flow from host {} to itself", source));
  return std::optional(PeerFlow{.source = Rank(static_cast<std::int32_t>(source)),
                                .target = Rank(static_cast<std::int32_t>(target)),
                                .bytes = bytes,
                                .start = start,
                                .path = static_cast<int>(path)});
}

}  // namespace

Result<std::vector<PeerFlow>> parse_flows(std::string_view text, std::string_view source,
                                          int host_count) {
  std::vector<PeerFlow> flows;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const Result<std::optional<PeerFlow>> flow = parse_line(text.substr(0, end), host_count);
    if (!flow.ok()) return topology::error_at(source, line, flow.error().message());
    if (*flow) flows.push_back(**flow);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (flows.empty() || flows.size() > kMaxFlows) {
    return Error(fmt::format("{}: {} flows; allowed: 1 to {}", source, flows.size(), kMaxFlows));
  }
  return flows;
}

Result<Mends> parse_mends(std::string_view text) {
  Mends mends;
  if (text == "none") return mends;
  if (text == "all") {
    for (std::size_t m = 0; m < kMendNames.size(); ++m) mends.add(static_cast<Mend>(m));
    return mends;
  }
  for (;;) {
    const std::string_view name = text.substr(0, text.find(','));
    const auto found = std::ranges::find(kMendNames, name);
    if (found == kMendNames.end()) {
      return Error(fmt::format("--mend '{}'; allowed: all, none, or of {}", name,
                               fmt::join(kMendNames, ",")));
    }
    mends.add(static_cast<Mend>(found - kMendNames.begin()));
    if (name.size() == text.size()) return mends;
    text.remove_prefix(name.size() + 1);
  }
}

Result<QueueLength> parse_queue_length(std::string_view text) {
  constexpr std::int64_t kMost = 1'000'000'000;
  if (text.empty() || (text.back() != 'p' && text.back() != 'B')) {
    return Error(fmt::format("queue length '{}'; allowed: packets as 65p, bytes as 97500B", text));
  }
  THALWEG_TRY(const std::int64_t count,
              topology::parse_whole("queue length", text.substr(0, text.size() - 1), 2, kMost));
  return QueueLength{.count = count, .in_bytes = text.back() == 'B'};
}

std::string to_string(QueueLength length) {
  return fmt::format("{}{}", length.count, length.in_bytes ? 'B' : 'p');
}

}  // namespace thalweg
