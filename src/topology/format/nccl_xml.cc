// NCCL's topology dump of one server. docs/topology-format.md says what becomes what.
//
// Every GPU has a slot of its own, a switch between it and the PCI tree. So a path over NVLink is
// shorter than any over PCI, and all traffic takes it, as with NCCL.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <pugixml.hpp>
#include <tuple>
#include <unordered_map>

#include "topology/format/load.h"
#include "topology/format/nccl_rates.h"
#include "topology/format/text.h"

namespace thalweg::topology {
namespace {

// How deep bridges may be nested. Real machines have three or four levels.
constexpr int kMaxPciDepth = 32;
constexpr std::int64_t kMaxNvlinks = 1024;
constexpr std::int64_t kMaxNetSpeedMbps = kMaxRate.bps() / 1'000'000;
// The delay of every hop inside the server. NCCL's dump has only the delays of the network ports.
constexpr Duration kHopDelay = Duration::nanoseconds(500);
// For links without a limit: a NIC attached to a CPU without a PCI device (a software device).
constexpr Bandwidth kLocalRate = Bandwidth::gbps(40'000);
// NCCL's guess for a port that does not report its speed.
constexpr std::int64_t kUnknownNetSpeedMbps = 10'000;
constexpr std::int64_t kUnknownPciWidth = 16;

struct Cpu {
  RegionId region;
  NodeId node;
  Bandwidth to_other_cpus;
};

// Hosts are numbered by rank, so GPUs are added only when all are known.
struct Gpu {
  pugi::xml_node xml;
  std::string name;
  std::string bus_id;
  std::int64_t rank = -1;
  NodeId parent;
  RegionId region;
  Bandwidth pci_rate;
  NodeId cpu;
  NodeId node;
};

class NcclReader {
 public:
  NcclReader(std::string_view text, std::string_view source)
      : source_(source), lines_(text), builder_(name_from_source(source)) {}

  Result<Topology> read(const pugi::xml_document& document);

 private:
  [[nodiscard]] Error error(const pugi::xml_node& node, std::string_view message) const {
    const std::ptrdiff_t offset = std::max<std::ptrdiff_t>(node.offset_debug(), 0);
    return error_at(source_, lines_.line_of(static_cast<std::size_t>(offset)), message);
  }
  [[nodiscard]] Error unknown(const pugi::xml_node& node, std::string_view allowed) const {
    return error(node, fmt::format("unknown element <{}> in <{}>; elements: {}", node.name(),
                                   node.parent().name(), allowed));
  }
  Result<std::int64_t> number(const pugi::xml_node& node, const char* attribute, std::int64_t least,
                              std::int64_t most, std::optional<std::int64_t> otherwise) const;
  Result<Duration> read_latency(const pugi::xml_node& net) const;
  Result<NodeId> add_switch(const pugi::xml_node& xml, std::string name, RegionId region);
  Status add_link(const pugi::xml_node& xml, NodeId a, NodeId b, Bandwidth rate, Duration delay);

  Status read_cpu(const pugi::xml_node& xml);
  Status read_pci(const pugi::xml_node& xml, const Cpu& cpu, NodeId parent, int depth);
  Status read_gpu(const pugi::xml_node& pci, const pugi::xml_node& gpu, const Cpu& cpu,
                  NodeId parent, Bandwidth rate);
  Status read_nic(const pugi::xml_node& xml, std::string name, const Cpu& cpu, NodeId parent,
                  Bandwidth rate);
  Status join_cpus(const pugi::xml_node& system);
  Status add_gpus();
  Status read_gpu_links(const Gpu& gpu);
  Status read_nvlink(const Gpu& gpu, const pugi::xml_node& xml, Bandwidth one_link);
  Status add_nvlink_pair(const Gpu& gpu, const Gpu& peer, const pugi::xml_node& xml,
                         std::int64_t count, Bandwidth one_link);

  std::string_view source_;
  LineIndex lines_;
  TopologyBuilder builder_;
  std::string host_hash_;
  std::vector<Cpu> cpus_;
  std::vector<Gpu> gpus_;
  std::unordered_map<std::string, std::size_t> gpu_of_bus_;
  // How many links each pair of GPUs is said to have; the key holds their two indices in gpus_.
  std::unordered_map<std::uint64_t, std::int64_t> nvlink_pairs_;
  NodeId nvswitch_;
  int nic_count_ = 0;
};

Result<std::int64_t> NcclReader::number(const pugi::xml_node& node, const char* attribute,
                                        std::int64_t least, std::int64_t most,
                                        std::optional<std::int64_t> otherwise) const {
  const pugi::xml_attribute given = node.attribute(attribute);
  if (!given) {
    if (otherwise) return *otherwise;
    return error(node, fmt::format("<{}> has no '{}'", node.name(), attribute));
  }
  Result<std::int64_t> value =
      parse_whole(fmt::format("'{}' of <{}>:", attribute, node.name()), given.value(), least, most);
  if (!value.ok()) return error(node, value.error().message());
  return value;
}

// The latency in the file is in microseconds, and 0 if it is missing.
Result<Duration> NcclReader::read_latency(const pugi::xml_node& net) const {
  const std::string_view text = net.attribute("latency").as_string("0");
  double latency_us = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), latency_us);
  if (failure == std::errc{} && rest == end && latency_us >= 0 && latency_us <= kMaxDelay.us()) {
    return Duration::seconds(latency_us * 1e-6);
  }
  return error(net, fmt::format("'latency' of <net>: '{}' is not a number from 0 to {} (us)", text,
                                kMaxDelay.us()));
}

Result<NodeId> NcclReader::add_switch(const pugi::xml_node& xml, std::string name,
                                      RegionId region) {
  Result<NodeId> id = builder_.add_switch(std::move(name), region);
  if (!id.ok()) return error(xml, id.error().message());
  return id;
}

Status NcclReader::add_link(const pugi::xml_node& xml, NodeId a, NodeId b, Bandwidth rate,
                            Duration delay) {
  const Result<LinkId> link = builder_.add_link(a, b, {rate, delay, Bytes()});
  if (!link.ok()) return error(xml, link.error().message());
  return ok_status();
}

Status NcclReader::read_cpu(const pugi::xml_node& xml) {
  const std::string hash = xml.attribute("host_hash").value();
  if (!cpus_.empty() && hash != host_hash_) {
    return error(xml, fmt::format("<cpu> has host_hash '{}', the first has '{}': only dumps of one "
                                  "server can be read",
                                  hash, host_hash_));
  }
  host_hash_ = hash;
  THALWEG_TRY(const std::int64_t numa, number(xml, "numaid", -1, kMaxNodes, std::nullopt));
  THALWEG_TRY(const std::int64_t model, number(xml, "modelid", -1, 1 << 20, -1));
  Cpu cpu;
  const Result<RegionId> region = builder_.add_region(fmt::format("numa{}", numa), kWholeNetwork);
  if (!region.ok()) return error(xml, region.error().message());
  cpu.region = *region;
  THALWEG_TRY(cpu.node, add_switch(xml, fmt::format("cpu{}", numa), cpu.region));
  cpu.to_other_cpus =
      nccl_inter_cpu_rate(xml.attribute("arch").value(), xml.attribute("vendor").value(), model);
  cpus_.push_back(cpu);
  for (const pugi::xml_node& child : xml.children()) {
    const std::string_view name = child.name();
    if (name == "pci") {
      THALWEG_TRY_STATUS(read_pci(child, cpu, cpu.node, 1));
    } else if (name == "nic") {
      THALWEG_TRY_STATUS(
          read_nic(child, fmt::format("nic{}", nic_count_++), cpu, cpu.node, kLocalRate));
    } else {
      return unknown(child, "pci, nic");
    }
  }
  return ok_status();
}

// A <pci> is a GPU, a NIC, or a bridge to further devices, as its contents say. A file written for
// NCCL_TOPO_FILE may leave out <gpu> and <nic>, which NCCL detects; then the class decides.
Status NcclReader::read_pci(const pugi::xml_node& xml, const Cpu& cpu, NodeId parent, int depth) {
  if (depth > kMaxPciDepth) {
    return error(xml, fmt::format("<pci> is nested {} deep: at most {}", depth, kMaxPciDepth));
  }
  const std::string bus_id = xml.attribute("busid").value();
  if (bus_id.empty()) return error(xml, "<pci> has no 'busid'");
  THALWEG_TRY(std::int64_t width, number(xml, "link_width", 0, 256, 0));
  if (width == 0) width = kUnknownPciWidth;
  const Bandwidth rate = Bandwidth::bits_per_second(
      nccl_pci_lane_rate(xml.attribute("link_speed").value()).bps() * width);
  const std::string_view pci_class = xml.attribute("class").value();
  if (!xml.first_child() && pci_class.starts_with("0x03")) {
    return read_gpu(xml, pugi::xml_node(), cpu, parent, rate);
  }
  if (xml.child("nic") || (!xml.first_child() && pci_class.starts_with("0x02"))) {
    for (const pugi::xml_node& child : xml.children()) {
      if (std::string_view(child.name()) != "nic") return unknown(child, "nic beside a nic");
    }
    return read_nic(xml, fmt::format("nic-{}", bus_id), cpu, parent, rate);
  }
  NodeId bridge;
  for (const pugi::xml_node& child : xml.children()) {
    const std::string_view name = child.name();
    if (name == "gpu") {
      THALWEG_TRY_STATUS(read_gpu(xml, child, cpu, parent, rate));
      continue;
    }
    if (name != "pci") return unknown(child, "pci, gpu, nic");
    if (!bridge.valid()) {
      THALWEG_TRY(bridge, add_switch(xml, fmt::format("pci-{}", bus_id), cpu.region));
      THALWEG_TRY_STATUS(add_link(xml, bridge, parent, rate, kHopDelay));
    }
    THALWEG_TRY_STATUS(read_pci(child, cpu, bridge, depth + 1));
  }
  return ok_status();
}

Status NcclReader::read_gpu(const pugi::xml_node& pci, const pugi::xml_node& gpu, const Cpu& cpu,
                            NodeId parent, Bandwidth rate) {
  Gpu entry;
  entry.xml = gpu ? gpu : pci;
  entry.bus_id = pci.attribute("busid").value();
  entry.name = fmt::format("gpu-{}", entry.bus_id);
  if (gpu) {
    THALWEG_TRY(const std::int64_t dev, number(gpu, "dev", 0, kMaxNodes, std::nullopt));
    THALWEG_TRY(entry.rank, number(gpu, "rank", -1, INT32_MAX, -1));
    entry.name = fmt::format("gpu{}", dev);
  }
  entry.parent = parent;
  entry.region = cpu.region;
  entry.pci_rate = rate;
  entry.cpu = cpu.node;
  gpus_.push_back(std::move(entry));
  return ok_status();
}

// `xml` is the <nic>, or the <pci> that holds one or more. Each <net> is a port to the outside.
Status NcclReader::read_nic(const pugi::xml_node& xml, std::string name, const Cpu& cpu,
                            NodeId parent, Bandwidth rate) {
  THALWEG_TRY(const NodeId nic, add_switch(xml, std::move(name), cpu.region));
  THALWEG_TRY_STATUS(add_link(xml, nic, parent, rate, kHopDelay));
  std::vector<pugi::xml_node> nics;
  if (std::string_view(xml.name()) == "nic") nics.push_back(xml);
  for (const pugi::xml_node& child : xml.children("nic")) nics.push_back(child);
  for (const pugi::xml_node& holder : nics) {
    for (const pugi::xml_node& net : holder.children()) {
      if (std::string_view(net.name()) != "net") return unknown(net, "net");
      THALWEG_TRY(const std::int64_t dev, number(net, "dev", 0, kMaxNodes, std::nullopt));
      THALWEG_TRY(std::int64_t mbps,
                  number(net, "speed", -1, kMaxNetSpeedMbps, kUnknownNetSpeedMbps));
      if (mbps <= 0) mbps = kUnknownNetSpeedMbps;
      THALWEG_TRY(const Duration latency, read_latency(net));
      THALWEG_TRY(const NodeId port, add_switch(net, fmt::format("net{}", dev), cpu.region));
      THALWEG_TRY_STATUS(
          add_link(net, port, nic, Bandwidth::bits_per_second(mbps * 1'000'000), latency));
    }
  }
  return ok_status();
}

Status NcclReader::join_cpus(const pugi::xml_node& system) {
  for (std::size_t i = 0; i < cpus_.size(); ++i) {
    for (std::size_t j = i + 1; j < cpus_.size(); ++j) {
      const Bandwidth rate = std::min(cpus_[i].to_other_cpus, cpus_[j].to_other_cpus);
      THALWEG_TRY_STATUS(add_link(system, cpus_[i].node, cpus_[j].node, rate, kHopDelay));
    }
  }
  return ok_status();
}

Status NcclReader::add_gpus() {
  const bool ranked =
      std::all_of(gpus_.begin(), gpus_.end(), [](const Gpu& gpu) { return gpu.rank >= 0; });
  if (ranked) {
    std::sort(gpus_.begin(), gpus_.end(), [](const Gpu& a, const Gpu& b) {
      return std::tie(a.rank, a.name) < std::tie(b.rank, b.name);
    });
  }
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    Gpu& gpu = gpus_[i];
    const Result<NodeId> node = builder_.add_host(gpu.name, gpu.region);
    if (!node.ok()) return error(gpu.xml, node.error().message());
    gpu.node = *node;
    if (ranked && i > 0 && gpu.rank == gpus_[i - 1].rank) {
      return error(gpu.xml, fmt::format("'rank' of <gpu>: {} and {} both have rank {}", gpu.name,
                                        gpus_[i - 1].name, gpu.rank));
    }
    THALWEG_TRY(const NodeId slot, add_switch(gpu.xml, "slot-" + gpu.name, gpu.region));
    THALWEG_TRY_STATUS(add_link(gpu.xml, gpu.node, slot, gpu.pci_rate, Duration()));
    THALWEG_TRY_STATUS(add_link(gpu.xml, slot, gpu.parent, gpu.pci_rate, kHopDelay));
    gpu_of_bus_.emplace(gpu.bus_id, i);
  }
  for (const Gpu& gpu : gpus_) {
    if (std::string_view(gpu.xml.name()) == "gpu") THALWEG_TRY_STATUS(read_gpu_links(gpu));
  }
  return ok_status();
}

Status NcclReader::read_gpu_links(const Gpu& gpu) {
  for (const pugi::xml_node& child : gpu.xml.children()) {
    const std::string_view name = child.name();
    if (name == "nvlink") {
      THALWEG_TRY(const std::int64_t sm, number(gpu.xml, "sm", 1, 1000, std::nullopt));
      THALWEG_TRY_STATUS(read_nvlink(gpu, child, nccl_nvlink_rate(sm)));
    } else if (name == "c2c") {
      constexpr std::int64_t kMost = 1'000'000;
      THALWEG_TRY(const std::int64_t mbytes, number(child, "bw", 1, kMost, std::nullopt));
      THALWEG_TRY(const std::int64_t count, number(child, "count", 1, kMaxNvlinks, std::nullopt));
      THALWEG_TRY_STATUS(
          add_link(child, gpu.node, gpu.cpu, megabytes_per_second(mbytes * count), kHopDelay));
    } else {
      return unknown(child, "nvlink, c2c");
    }
  }
  return ok_status();
}

// The class of the target says what it is: a display controller is a GPU, 0x068000 an NVSwitch (all
// of them form one fabric), 0x068001 a bridge to the CPU (POWER).
Status NcclReader::read_nvlink(const Gpu& gpu, const pugi::xml_node& xml, Bandwidth one_link) {
  THALWEG_TRY(const std::int64_t count, number(xml, "count", 1, kMaxNvlinks, std::nullopt));
  const std::string target = xml.attribute("target").value();
  const std::string_view target_class = xml.attribute("tclass").value();
  const Bandwidth rate = Bandwidth::bits_per_second(one_link.bps() * count);
  if (target_class == "0x068000") {
    if (!nvswitch_.valid()) {
      THALWEG_TRY(nvswitch_, add_switch(xml, "nvswitch", kWholeNetwork));
    }
    return add_link(xml, gpu.node, nvswitch_, rate, kHopDelay);
  }
  if (target_class == "0x068001") return add_link(xml, gpu.node, gpu.cpu, rate, kHopDelay);
  if (!target_class.empty() && !target_class.starts_with("0x03")) {
    return error(xml, fmt::format("'tclass' of <nvlink>: '{}' is unknown: 0x03… (GPU), 0x068000 "
                                  "(NVSwitch), 0x068001 (CPU)",
                                  target_class));
  }
  const auto peer = gpu_of_bus_.find(target);
  if (peer == gpu_of_bus_.end()) {
    return error(xml, fmt::format("'target' of <nvlink>: no GPU has the busid '{}'", target));
  }
  return add_nvlink_pair(gpu, gpus_[peer->second], xml, count, one_link);
}

// Both GPUs list their common links; the second time the counts only have to agree.
Status NcclReader::add_nvlink_pair(const Gpu& gpu, const Gpu& peer, const pugi::xml_node& xml,
                                   std::int64_t count, Bandwidth one_link) {
  const auto place = [&](const Gpu& g) { return static_cast<std::uint64_t>(&g - gpus_.data()); };
  const std::uint64_t key =
      std::min(place(gpu), place(peer)) << 32 | std::max(place(gpu), place(peer));
  const auto [said, fresh] = nvlink_pairs_.emplace(key, count);
  if (fresh) {
    return add_link(xml, gpu.node, peer.node, Bandwidth::bits_per_second(one_link.bps() * count),
                    kHopDelay);
  }
  if (said->second == count) return ok_status();
  return error(xml, fmt::format("'count' of <nvlink>: {} links between {} and {}, but {} were "
                                "listed before",
                                count, gpu.name, peer.name, said->second));
}

Result<Topology> NcclReader::read(const pugi::xml_document& document) {
  const pugi::xml_node system = document.child("system");
  if (!system) return error(document, "no <system> element: not a topology dump of NCCL");
  for (const pugi::xml_node& child : system.children()) {
    if (std::string_view(child.name()) != "cpu") return unknown(child, "cpu");
    THALWEG_TRY_STATUS(read_cpu(child));
  }
  THALWEG_TRY_STATUS(join_cpus(system));
  if (gpus_.empty()) return error(system, "<system> holds no GPU: at least one is needed");
  THALWEG_TRY_STATUS(add_gpus());
  Result<Topology> topology = std::move(builder_).build();
  if (!topology.ok()) return topology.error().within(std::string(source_));
  return topology;
}

}  // namespace

Result<Topology> topology_from_nccl_xml(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(check_text(text, source));
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(
      text.data(), text.size(), pugi::parse_minimal | pugi::parse_escapes, pugi::encoding_utf8);
  if (!parsed) {
    const auto offset = static_cast<std::size_t>(std::max<std::ptrdiff_t>(parsed.offset, 0));
    return error_at(source, LineIndex(text).line_of(offset),
                    fmt::format("not XML: {}", parsed.description()));
  }
  return NcclReader(text, source).read(document);
}

}  // namespace thalweg::topology
