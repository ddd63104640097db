#include "plan/format/json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace thalweg::plan {
namespace {

using Json = nlohmann::json;

const char* json_name_of(TransferKind kind) {
  return kind == TransferKind::kReduce ? "reduce" : "copy";
}

void append_rank(std::string& out, std::string_view key, Rank rank) {
  if (rank.valid()) fmt::format_to(std::back_inserter(out), ", \"{}\": {}", key, rank.value());
}

// Writes `[`, one item per line, and `]`.
template <class Items, class Write>
void append_list(std::string& out, std::string_view key, const Items& items, Write write) {
  fmt::format_to(std::back_inserter(out), ",\n  \"{}\": [", key);
  bool first = true;
  for (const auto& item : items) {
    out += first ? "\n    " : ",\n    ";
    first = false;
    write(item);
  }
  out += first ? "]" : "\n  ]";
}

void append_header(std::string& out, const Plan& plan) {
  // JSON cannot hold text that is not UTF-8; the replacement character marks it.
  const std::string scheme = Json(plan.scheme).dump(-1, ' ', false, Json::error_handler_t::replace);
  fmt::format_to(std::back_inserter(out),
                 "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"scheme\": {},\n"
                 "  \"collective\": \"{}\",\n  \"ranks\": {},\n  \"contributors\": {},\n",
                 kPlanFormatName, kPlanFormatVersion, scheme,
                 thalweg::plan::name_of(plan.collective), plan.ranks, plan.contributors);
  if (plan.root.valid()) {
    fmt::format_to(std::back_inserter(out), "  \"root\": {},\n", plan.root.value());
  }
  fmt::format_to(std::back_inserter(out), "  \"elements\": {},\n  \"element_bytes\": {}",
                 plan.elements, plan.element_bytes);
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  constexpr std::size_t kLineBytes = 80;
  std::string out;
  out.reserve((plan.chunks.size() + plan.transfers.size()) * kLineBytes);
  append_header(out, plan);
  append_list(out, "chunks", plan.chunks, [&out](const Chunk& chunk) {
    fmt::format_to(std::back_inserter(out), "{{\"offset\": {}, \"length\": {}", chunk.offset,
                   chunk.length);
    append_rank(out, "source", chunk.source);
    append_rank(out, "target", chunk.target);
    out += '}';
  });
  append_list(out, "transfers", plan.transfers, [&out](const PlanTransfer& transfer) {
    fmt::format_to(std::back_inserter(out),
                   "{{\"from\": {}, \"to\": {}, \"chunk\": {}, \"after\": {}, \"kind\": \"{}\"}}",
                   transfer.source.value(), transfer.target.value(), transfer.chunk.value(),
                   transfer.after, json_name_of(transfer.kind));
  });
  if (!plan.mixes.empty()) {
    append_list(out, "mixes", plan.mixes, [&out](const std::vector<Rank>& mix) {
      out += '[';
      for (std::size_t i = 0; i < mix.size(); ++i) {
        fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ", ", mix[i].value());
      }
      out += ']';
    });
  }
  out += "\n}\n";
  return out;
}

}  // namespace thalweg::plan
