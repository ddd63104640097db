#include "sim/core/network.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "sim/core/crew.h"
#include "sim/core/shard.h"

namespace thalweg::sim {

// Time runs in windows. Within a window no shard looks at another, because nothing that another
// does then can reach it before the window is over: a window is no longer than the lookahead.
// Between windows the shards exchange their letters.
class Network::Impl {
 public:
  Impl(const topology::Topology& topology, const NetworkOptions& options, const Sharding& sharding)
      : topology_(topology),
        map_(topology, sharding.shards),
        crew_(sharding.crew),
        lookahead_ps_(sharding.lookahead ? sharding.lookahead->ps() : map_.lookahead_ps()) {
    for (std::size_t s = 0; s < map_.count(); ++s) {
      shards_.push_back(std::make_unique<Shard>(topology, options, map_, s));
    }
    if (shards_.size() == 1) lookahead_ps_ = Shard::kNever;
  }

  bool run(std::int64_t until_ps);
  void call_at(Time when, std::function<void()> action);
  const NetworkCounters& counters();
  const std::vector<std::uint64_t>& arc_bytes();
  [[nodiscard]] std::vector<std::string> violations() const;

  [[nodiscard]] Time now() const {
    return shards_.size() == 1 ? first().events.now() : Time::at(Duration::picoseconds(now_ps_));
  }
  [[nodiscard]] Shard& first() const { return *shards_.front(); }
  [[nodiscard]] std::size_t shard_of(Rank host) const {
    return map_.of_node(topology_.host(host).index());
  }
  [[nodiscard]] Shard& at(Rank host) const { return *shards_[shard_of(host)]; }
  // The shards at the start and at the end of an arc.
  [[nodiscard]] Shard& before(topology::ArcId arc) const {
    return *shards_[map_.of_node(topology_.arc(arc).from.index())];
  }
  [[nodiscard]] Shard& behind(topology::ArcId arc) const {
    return *shards_[map_.of_node(topology_.arc(arc).to.index())];
  }

  const topology::Topology& topology_;
  const ShardMap map_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::uint64_t windows_ = 0;

 private:
  [[nodiscard]] std::int64_t next_call_ps() const {
    return agenda_.empty() ? Shard::kNever : agenda_.begin()->first;
  }
  [[nodiscard]] std::int64_t next_event_ps() const;
  [[nodiscard]] std::int64_t latest_ps() const;
  void run_window(std::int64_t last_ps);
  void make_calls(std::int64_t time_ps);
  // Takes the letters for a shard that the others wrote before the last flip.
  void collect(std::size_t shard);
  void advance_to(std::int64_t time_ps);

  Crew* const crew_;
  std::int64_t lookahead_ps_;
  std::int64_t now_ps_ = 0;
  std::uint64_t late_calls_ = 0;
  bool in_window_ = false;
  // Calls of call_at(), by time and then in the order they were made.
  std::multimap<std::int64_t, std::function<void()>> agenda_;
  NetworkCounters counters_;
  std::vector<std::uint64_t> arc_bytes_;
};

std::int64_t Network::Impl::next_event_ps() const {
  std::int64_t next = Shard::kNever;
  for (const auto& shard : shards_) {
    next = std::min({next, shard->next_ps(), shard->post.earliest_ps()});
  }
  return next;
}

bool Network::Impl::run(std::int64_t until_ps) {
  for (;;) {
    const std::int64_t event_ps = next_event_ps();
    const std::int64_t call_ps = next_call_ps();
    const std::int64_t next_ps = std::min(event_ps, call_ps);
    if (next_ps == Shard::kNever) break;
    if (next_ps > until_ps) {
      advance_to(std::max(until_ps, latest_ps()));
      return false;
    }
    if (call_ps <= event_ps) {
      make_calls(call_ps);
      continue;
    }
    std::int64_t last_ps = std::min(until_ps, call_ps - 1);
    if (last_ps - event_ps >= lookahead_ps_) last_ps = event_ps + lookahead_ps_ - 1;
    run_window(last_ps);
  }
  advance_to(latest_ps());
  return true;
}

std::int64_t Network::Impl::latest_ps() const {
  std::int64_t latest = now_ps_;
  for (const auto& shard : shards_) latest = std::max(latest, shard->events.now_ps());
  return latest;
}

void Network::Impl::run_window(std::int64_t last_ps) {
  ++windows_;
  in_window_ = true;
  if (shards_.size() == 1) {
    first().run(last_ps);
    in_window_ = false;
    return;
  }
  for (const auto& shard : shards_) shard->post.flip();
  const auto task = [this, last_ps](std::size_t s) {
    collect(s);
    shards_[s]->run(last_ps);
  };
  if (crew_ != nullptr) {
    crew_->run(shards_.size(), task);
  } else {
    for (std::size_t s = 0; s < shards_.size(); ++s) task(s);
  }
  in_window_ = false;
}

void Network::Impl::collect(std::size_t shard) {
  for (std::size_t from = 0; from < shards_.size(); ++from) {
    if (from != shard) shards_[shard]->receive(from, shards_[from]->post.letters_for(shard));
  }
}

void Network::Impl::advance_to(std::int64_t time_ps) {
  now_ps_ = time_ps;
  for (const auto& shard : shards_) shard->events.advance_to(time_ps);
}

void Network::Impl::make_calls(std::int64_t time_ps) {
  if (shards_.size() > 1) {
    for (const auto& shard : shards_) shard->post.flip();
    for (std::size_t s = 0; s < shards_.size(); ++s) collect(s);
  }
  advance_to(time_ps);
  while (next_call_ps() == time_ps) {
    const std::function<void()> action = std::move(agenda_.begin()->second);
    agenda_.erase(agenda_.begin());
    action();
  }
}

void Network::Impl::call_at(Time when, std::function<void()> action) {
  // The end of this window may lie after the call.
  if (in_window_) {
    CHECK(shards_.size() == 1, "a shard asks for a call that concerns others");
    return first().call_at(when, std::move(action));
  }
  const std::int64_t now_ps = now().since_start().ps();
  const std::int64_t time_ps = when.since_start().ps();
  if (time_ps < now_ps) ++late_calls_;
  agenda_.emplace(std::max(time_ps, now_ps), std::move(action));
}

const std::vector<std::uint64_t>& Network::Impl::arc_bytes() {
  if (shards_.size() == 1) return first().fabric.arc_bytes();
  arc_bytes_.resize(topology_.arc_count());
  for (std::size_t a = 0; a < arc_bytes_.size(); ++a) {
    const topology::ArcId arc(static_cast<std::int32_t>(a));
    arc_bytes_[a] = behind(arc).fabric.arc_bytes()[a];
  }
  return arc_bytes_;
}

const NetworkCounters& Network::Impl::counters() {
  NetworkCounters& sum = counters_ = NetworkCounters();
  for (const auto& shard : shards_) {
    const NetworkCounters& c = shard->counters;
    sum.events += shard->events.taken();
    sum.packet_hops += c.packet_hops;
    sum.packets_sent += c.packets_sent;
    sum.data_packets_sent += c.data_packets_sent;
    sum.packets_delivered += c.packets_delivered;
    sum.packets_absorbed += c.packets_absorbed;
    sum.packets_copied += c.packets_copied;
    sum.drops_full += c.drops_full;
    sum.drops_selective += c.drops_selective;
    sum.drops_fault += c.drops_fault;
    sum.marks += c.marks;
    sum.timeouts += c.timeouts;
    sum.bytes_sent += c.bytes_sent;
    sum.bytes_delivered += c.bytes_delivered;
    sum.bytes_dropped += c.bytes_dropped;
    sum.bytes_absorbed += c.bytes_absorbed;
    sum.bytes_copied += c.bytes_copied;
    sum.peak_packets += shard->fabric.pool().peak();
    sum.peak_backlog = std::max(sum.peak_backlog, shard->fabric.peak_backlog());
    sum.peak_host_backlog = std::max(sum.peak_host_backlog, shard->fabric.peak_host_backlog());
  }
  return sum;
}

std::vector<std::string> Network::Impl::violations() const {
  std::vector<std::string> all;
  const bool idle = agenda_.empty() && next_event_ps() == Shard::kNever;
  for (const auto& shard : shards_) shard->check(idle, all);
  if (late_calls_ > 0) all.push_back(fmt::format("{} calls lay in the past", late_calls_));
  return all;
}

Network::Network(const topology::Topology& topology, const NetworkOptions& options,
                 const Sharding& sharding)
    : impl_(std::make_unique<Impl>(topology, options, sharding)) {}
Network::~Network() = default;

Time Network::now() const { return impl_->now(); }
Time Network::now(Rank host) const { return impl_->at(host).events.now(); }
std::size_t Network::shard_count() const { return impl_->shards_.size(); }
std::size_t Network::shard_of(Rank host) const { return impl_->shard_of(host); }
std::uint64_t Network::window() const { return impl_->windows_; }
const topology::Topology& Network::topology() const { return impl_->topology_; }
Result<std::int32_t> Network::add_aggregation(const AggregationSpec& spec) {
  CHECK(shard_count() == 1, "aggregation needs a network of one shard");
  return impl_->first().hosts.aggregation().add(spec);
}
AggregationCounters Network::aggregation_counters(std::int32_t aggregation) const {
  return impl_->first().hosts.aggregation().counters(aggregation);
}
const std::vector<std::string>& Network::aggregation_failures() const {
  return impl_->first().hosts.aggregation().failures();
}
FlowId Network::start_flow(const FlowSpec& spec, FlowHooks hooks) {
  return impl_->at(spec.source).hosts.start_flow(spec, std::move(hooks));
}
void Network::call_at(Time when, std::function<void()> action) {
  impl_->call_at(when, std::move(action));
}
void Network::call_on(Rank host, Time when, std::function<void()> action) {
  impl_->at(host).call_at(when, std::move(action));
}
void Network::on_flow_done(std::function<void(const FlowResult&)> callback) {
  for (const auto& shard : impl_->shards_) shard->hosts.on_flow_done(callback);
}
bool Network::run(Time until) { return impl_->run(until.since_start().ps()); }

const NetworkCounters& Network::counters() const { return impl_->counters(); }
const std::vector<std::uint64_t>& Network::arc_bytes() const { return impl_->arc_bytes(); }
std::uint64_t Network::queued_bytes(topology::ArcId arc) const {
  return impl_->before(arc).fabric.queued_bytes(arc);
}
std::uint64_t Network::take_queue_peak(topology::ArcId arc) {
  return impl_->before(arc).fabric.take_queue_peak(arc);
}
std::uint64_t Network::drops_at(topology::ArcId arc) const {
  const Shard& before = impl_->before(arc);
  const Shard& behind = impl_->behind(arc);
  return before.fabric.drops_at(arc) + (&before == &behind ? 0 : behind.fabric.drops_at(arc));
}
std::size_t Network::flows_started() const {
  std::size_t count = 0;
  for (const auto& shard : impl_->shards_) count += shard->hosts.flows_started();
  return count;
}
std::optional<FlowProgress> Network::progress_of(FlowId flow) const {
  return impl_->first().hosts.progress_of(flow);
}
std::size_t Network::active_flows() const {
  std::size_t count = 0;
  for (const auto& shard : impl_->shards_) count += shard->hosts.active_flows();
  return count;
}

// A fault of a link concerns both its ends, which may be in different shards; a shard that has
// neither does nothing with it.
void Network::set_loss(topology::ArcId arc, double probability) {
  for (const auto& shard : impl_->shards_) shard->fabric.set_loss(arc, probability);
}
void Network::set_bursty_loss(topology::ArcId arc, double good_packets, double bad_packets) {
  for (const auto& shard : impl_->shards_) {
    shard->fabric.set_bursty_loss(arc, good_packets, bad_packets);
  }
}
void Network::set_link_up(topology::LinkId link, bool up) {
  for (const auto& shard : impl_->shards_) {
    shard->oracle.allow_spread();
    shard->fabric.set_link_up(link, up);
  }
}
void Network::set_rate_factor(topology::LinkId link, double factor) {
  for (const auto& shard : impl_->shards_) {
    shard->oracle.raise_rate(link, shard->fabric.set_rate_factor(link, factor));
  }
}
void Network::set_host_paused(Rank host, bool paused) {
  Shard& shard = impl_->at(host);
  shard.fabric.set_host_paused(host, paused);
  if (paused) return;
  shard.hosts.on_drained(host);
  shard.hosts.dlcp().resume(host);
  shard.hosts.aggregation().resume(host);
}
void Network::restart_switch(topology::NodeId node) {
  impl_->shards_[impl_->map_.of_node(node.index())]->fabric.restart_switch(node);
}

std::vector<std::string> Network::violations() const { return impl_->violations(); }

}  // namespace thalweg::sim
