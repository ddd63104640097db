// The part of Switchboard that answers requests on the control socket.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/testbed/capacity.h"
#include "lab/testbed/frame.h"
#include "lab/testbed/link_change.h"
#include "lab/testbed/switchboard.h"

namespace thalweg::lab {

using nlohmann::json;

namespace {

constexpr double kMinStallMs = 1;
constexpr double kMaxStallMs = 3.6e6;

json named(const std::vector<std::pair<const char*, std::uint64_t>>& counts) {
  json object = json::object();
  for (const auto& [name, count] : counts) object[name] = count;
  return object;
}

// The text in a field of the request; empty if there is none.
std::string text_in(const json& request, const char* field) {
  const auto found = request.find(field);
  return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string Switchboard::link_name(topology::LinkId link) const {
  const topology::Link& ends = topology_.links()[link.index()];
  return topology_.node(ends.a).name + "-" + topology_.node(ends.b).name;
}

Result<std::vector<topology::LinkId>> Switchboard::links_named(const std::string& name) const {
  std::vector<topology::LinkId> found;
  for (std::size_t l = 0; l < link_count(); ++l) {
    const topology::LinkId link(static_cast<std::int32_t>(l));
    const topology::Link& ends = topology_.links()[l];
    const std::string back = topology_.node(ends.b).name + "-" + topology_.node(ends.a).name;
    if (name == "all" || name == link_name(link) || name == back) found.push_back(link);
  }
  if (!found.empty()) return found;
  std::string some;
  for (std::size_t l = 0; l < std::min<std::size_t>(8, link_count()); ++l) {
    some += link_name(topology::LinkId(static_cast<std::int32_t>(l))) + ", ";
  }
  return Error(fmt::format("link: '{}' joins no two nodes: {}… or all", name, some));
}

Result<Rank> Switchboard::host_named(const std::string& name) const {
  for (Rank rank(0); rank.value() < host_count(); ++rank) {
    if (name == topology_.node(topology_.host(rank)).name || name == std::to_string(rank.value())) {
      return rank;
    }
  }
  return Error(fmt::format("host: '{}' is neither a host's name nor a number from 0 to {}", name,
                           host_count() - 1));
}

Result<json> Switchboard::on_request(const switchd::ControlServer::Requester& from,
                                     const json& request) {
  const std::uint64_t client = from.client;
  const std::string what = text_in(request, "do");
  if (what == "stats") return statistics();
  if (what == "set") return set_link(request);
  if (what == "capture") return start_capture(client, request);
  if (what == "restart" || what == "pause" || what == "resume") return restart_or_pause(request);
  if (what == "capture-look") return look_at_capture(client);
  if (what == "capture-end") return end_capture(client);
  if (what == "stall") return set_stalls(request);
  if (what == "down") {
    loop_->stop();
    return json::object();
  }
  return Error(
      fmt::format("do: '{}'; allowed are stats, set, capture, capture-look, capture-end, stall, "
                  "restart, pause, "
                  "resume and down",
                  what));
}

void Switchboard::on_closed(std::uint64_t client) {
  for (Capture& capture : captures_) {
    if (capture.client == client) capture.file.flush();
  }
  std::erase_if(captures_, [&](const Capture& capture) { return capture.client == client; });
}

json Switchboard::links_json() {
  sim::Fabric& fabric = network_.fabric();
  json links = json::array();
  for (std::size_t l = 0; l < link_count(); ++l) {
    json arcs = json::array();
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const topology::ArcId arc(static_cast<std::int32_t>(l * 2 + side));
      arcs.push_back({{"from", topology_.node(topology_.arc(arc).from).name},
                      {"bytes", fabric.arc_bytes()[arc.index()]},
                      {"queued", fabric.queued_bytes(arc)},
                      {"drops", fabric.drops_at(arc)}});
    }
    links.push_back({{"name", link_name(topology::LinkId(static_cast<std::int32_t>(l)))},
                     {"rate_bps", rates_[l].bps()},
                     {"arcs", std::move(arcs)}});
  }
  return links;
}

json Switchboard::statistics() {
  json hosts = json::array();
  for (Rank rank(0); rank.value() < host_count(); ++rank) {
    const TestbedHost& host = hosts_[rank.index()];
    hosts.push_back({{"rank", rank.value()},
                     {"name", topology_.node(topology_.host(rank)).name},
                     {"address", address_of(rank)},
                     {"namespace", host.named},
                     {"enter", fmt::format("/proc/{}/fd/{}", getpid(), host.space.get())}});
  }
  json aggregators = json::array();
  for (std::size_t i = 0; i < settings_.aggregate.size(); ++i) {
    const Rank rank(host_count() + static_cast<std::int32_t>(i));
    aggregators.push_back(
        {{"switch", settings_.aggregate[i]},
         {"control", fmt::format("{}:{}", address_of(rank), kAggregatorControlPort)},
         {"token", settings_.switch_token}});
  }
  const sim::NetworkCounters& counters = network_.counters();
  const LiveFabric::Lateness& late = network_.lateness();
  return {{"name", settings_.name},
          {"topology", topology_.name()},
          {"pid", getpid()},
          {"state", settings_.folder},
          {"mtu", settings_.mtu},
          {"scale", settings_.scale},
          {"framing", settings_.network.framing_bytes},
          {"up_s", (now_ - started_).s()},
          {"frames_per_second", settings_.frames_per_second},
          {"hosts", std::move(hosts)},
          {"aggregators", std::move(aggregators)},
          {"links", links_json()},
          {"frames", named({{"sent", counters.packets_sent},
                            {"delivered", counters.packets_delivered},
                            {"inside", network_.frames_inside()},
                            {"dropped_full", counters.drops_full},
                            {"dropped_selective", counters.drops_selective},
                            {"dropped_fault", counters.drops_fault},
                            {"marked", counters.marks},
                            {"refused", network_.refused()},
                            {"undelivered", undelivered_}})},
          {"late",
           {{"frames", late.frames},
            {"over_100us", late.over_100us},
            {"over_1ms", late.over_1ms},
            {"most_us", late.most.us()}}}};
}

Status Switchboard::check_rates(std::span<const Bandwidth> rates) const {
  const double needed = frames_needed(topology_, rates, settings_.mtu);
  if (needed <= settings_.frames_per_second) return ok_status();
  return Error(
      fmt::format("rate: the hosts' links could carry {:.0f} frames of {} bytes a second, and this "
                  "machine {:.0f}",
                  needed, settings_.mtu, settings_.frames_per_second));
}

Result<json> Switchboard::set_link(const json& request) {
  THALWEG_TRY(const std::vector<topology::LinkId> links, links_named(text_in(request, "link")));
  THALWEG_TRY(const LinkChange change, LinkChange::parse(text_in(request, "change")));
  if (change.rate) {
    std::vector<Bandwidth> rates = rates_;
    for (const topology::LinkId link : links) rates[link.index()] = *change.rate;
    THALWEG_TRY_STATUS(check_rates(rates));
  }
  sim::Fabric& fabric = network_.fabric();
  json hosts = json::array();
  for (const topology::LinkId link : links) {
    const topology::Link& ends = topology_.links()[link.index()];
    if (change.rate) {
      const double factor =
          static_cast<double>(change.rate->bps()) / static_cast<double>(ends.spec.rate.bps());
      rates_[link.index()] = fabric.set_rate_factor(link, factor);
      for (const Rank rank : {topology_.rank_of(ends.a), topology_.rank_of(ends.b)}) {
        if (rank.valid()) hosts.push_back(rank.value());
      }
    }
    if (change.delay) fabric.set_delay(link, *change.delay);
    if (change.up) fabric.set_link_up(link, *change.up);
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const topology::ArcId arc(static_cast<std::int32_t>(link.index() * 2 + side));
      if (change.loss) fabric.set_loss(arc, *change.loss);
      if (change.burst) fabric.set_bursty_loss(arc, change.burst->good, change.burst->bad);
    }
  }
  // `hosts`: those whose devices must send at another rate now.
  return json{{"links", links.size()}, {"hosts", std::move(hosts)}};
}

Result<json> Switchboard::restart_or_pause(const json& request) {
  const std::string what = text_in(request, "do");
  const std::string name = text_in(request, "node");
  if (what != "restart") {
    THALWEG_TRY(const Rank host, host_named(name));
    paused_[host.index()] = what == "pause";
    hold_or_release(host);
    return json::object();
  }
  const topology::NodeId node = topology_.find_node(name);
  if (!node.valid() || topology_.rank_of(node).valid()) {
    return Error(fmt::format("restart: '{}' is not a switch of the topology", name));
  }
  network_.fabric().restart_switch(node);
  const auto aggregator = std::ranges::find(settings_.aggregate, name);
  if (aggregator != settings_.aggregate.end()) {
    const auto place = static_cast<std::size_t>(aggregator - settings_.aggregate.begin());
    THALWEG_TRY_STATUS(aggregators_[place]->restart());
  }
  return json::object();
}

Result<json> Switchboard::set_stalls(const json& request) {
  const auto in_ms = [&](const char* field) -> Result<Duration> {
    const auto found = request.find(field);
    const double ms = found != request.end() && found->is_number() ? found->get<double>() : 0;
    if (!(ms >= kMinStallMs && ms <= kMaxStallMs)) {
      return Error(fmt::format("{}: {} to {} ms is allowed", field, kMinStallMs, kMaxStallMs));
    }
    return Duration::seconds(ms / 1e3);
  };
  std::optional<Stalls> next;
  if (const auto off = request.find("off"); off == request.end() || *off != true) {
    THALWEG_TRY(const Duration every, in_ms("every_ms"));
    THALWEG_TRY(const Duration length, in_ms("for_ms"));
    const auto seed = request.find("seed");
    const bool seeded = seed != request.end() && seed->is_number_unsigned();
    next.emplace(host_count(), every, length, seeded ? seed->get<std::uint64_t>() : 1, now_);
  }
  const Rank stalled = stalls_ ? stalls_->stalled() : Rank();
  stalls_ = next;
  if (stalled.valid()) hold_or_release(stalled);
  return json::object();
}

Result<json> Switchboard::look_at_capture(std::uint64_t client) {
  const auto mine = std::ranges::find(captures_, client, &Capture::client);
  if (mine == captures_.end()) return Error("capture-look: this connection captures nothing");
  return json{{"frames", mine->frames}, {"full", mine->most > 0 && mine->frames == mine->most}};
}

Result<json> Switchboard::end_capture(std::uint64_t client) {
  const auto mine = std::ranges::find(captures_, client, &Capture::client);
  if (mine == captures_.end()) return Error("capture-end: this connection captures nothing");
  const std::uint64_t frames = mine->frames;
  const bool whole = mine->file.flush();
  captures_.erase(mine);
  if (!whole) return Error("the capture's file could not be written");
  return json{{"frames", frames}};
}

Result<json> Switchboard::start_capture(std::uint64_t client, const json& request) {
  const std::string place = text_in(request, "place");
  std::vector<bool> arcs(topology_.arc_count());
  if (const Result<Rank> host = host_named(place); host.ok()) {
    for (const topology::ArcId arc : topology_.arcs_from(topology_.host(*host))) {
      arcs[arc.index()] = arcs[arc.index() ^ 1] = true;
    }
  } else {
    const Result<std::vector<topology::LinkId>> links = links_named(place);
    if (!links.ok()) {
      return Error(
          fmt::format("'{}' names neither a host nor a link (names of its ends: a-b)", place));
    }
    for (const topology::LinkId link : *links)
      arcs[link.index() * 2] = arcs[link.index() * 2 + 1] = true;
  }
  const auto most = request.find("most");
  const bool limited = most != request.end() && most->is_number_unsigned();
  THALWEG_TRY(PcapFile file, PcapFile::create(text_in(request, "file")));
  captures_.push_back({.client = client,
                       .arcs = std::move(arcs),
                       .file = std::move(file),
                       .most = limited ? most->get<std::uint64_t>() : 0});
  return json::object();
}

}  // namespace thalweg::lab
