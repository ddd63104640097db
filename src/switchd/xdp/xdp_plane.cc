#include "switchd/xdp/xdp_plane.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/core.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include <atp_switch_program.h>
#include "base/check.h"
#include "net/io/fd.h"
#include "net/io/system.h"
#include "switch/aggregation/aggregate.h"
#include "switchd/xdp/atp_maps.h"
#include "wire/wire.h"

namespace thalweg::switchd {
namespace {

static_assert(static_cast<int>(ATP_WIRE_VERSION) == int{wire::kAtpVersion});
static_assert(static_cast<int>(ATP_XDP_CAUSES) == switches::kAggregateCauseCount);
static_assert(static_cast<std::size_t>(ATP_XDP_ENDS) == net::kMaxJobServers);

int keep_quiet(enum libbpf_print_level /*level*/, const char* /*format*/, va_list /*values*/) {
  return 0;
}

const sockaddr_in& v4(const net::SocketAddress& address) {
  return *reinterpret_cast<const sockaddr_in*>(address.get());
}

bool all_v4(const std::vector<net::SocketAddress>& addresses) {
  return std::ranges::all_of(addresses, [](const auto& a) { return a.family() == AF_INET; });
}

// The kernel answers a program's route lookups only for devices that forward.
Status check_forwarding(const std::string& device) {
  int value = 0;
  std::ifstream(fmt::format("/proc/sys/net/ipv4/conf/{}/forwarding", device)) >> value;
  if (value != 0) return ok_status();
  // The sysctl is written with slashes, because names of devices may have dots.
  return Error(fmt::format("xdp: '{}' does not forward: 'sysctl -w net/ipv4/conf/{}/forwarding=1'",
                           device, device));
}

// Sends an empty packet so that the system learns the Ethernet address of an end; the XDP program
// cannot ask for it.
void make_known(const net::SocketAddress& address) {
  constexpr std::uint16_t kDiscard = 9;
  const net::Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  net::SocketAddress to = address;
  to.set_port(kDiscard);
  // A failure here does no harm: the first sums are lost, and sent again.
  [[maybe_unused]] const ssize_t sent = sendto(fd.get(), nullptr, 0, 0, to.get(), to.size());
}

atp_xdp_end end_of(const net::SocketAddress& address, const XdpOptions& options) {
  atp_xdp_end end{};
  end.ip = v4(address).sin_addr.s_addr;
  end.port = v4(address).sin_port;
  if (options.next_hop) std::ranges::copy(*options.next_hop, end.mac);
  return end;
}

}  // namespace

class XdpPlane::Core {
 public:
  Core(const XdpOptions& options, bpf_object* object)
      : options_(options), object_(object, bpf_object__close) {}

  Status start() {
    atp_xdp_config config{};
    config.slots = options_.slots;
    config.ip = v4(options_.data).sin_addr.s_addr;
    config.first_port = options_.data.port();
    config.shards = static_cast<std::uint16_t>(options_.shards);
    config.lifetime_ns = static_cast<std::uint64_t>(options_.lifetime.ps() / 1000);
    return set("config", 0, &config);
  }

  Status attach(const std::string& device, bool generic) {
    const auto index = static_cast<int>(if_nametoindex(device.c_str()));
    if (index == 0) return net::system_error(fmt::format("xdp: '{}'", device), errno);
    if (!options_.next_hop) THALWEG_TRY_STATUS(check_forwarding(device));
    int failure = 0;
    for (const std::uint32_t mode : {XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE}) {
      if (generic && mode == XDP_FLAGS_DRV_MODE) continue;
      bpf_link_create_opts how{};
      how.sz = sizeof(how);
      how.flags = mode;
      // The attachment lasts as long as this descriptor: a switch that dies leaves nothing behind.
      const int link = bpf_link_create(program(), index, BPF_XDP, &how);
      if (link >= 0) {
        links_.emplace_back(link);
        return ok_status();
      }
      failure = link;
    }
    return net::system_error(fmt::format("xdp: cannot attach to '{}'", device), -failure);
  }

  Status install(const AdmittedJob& job) {
    // The program sums at one level and sends by one path; a job of both levels here, of several
    // paths, or with more workers than the program has room for, is the process's.
    const bool both = job.about.groups != 0 && job.about.second_level;
    if (both || job.workers.size() > static_cast<std::size_t>(ATP_XDP_ENDS) || job.key ||
        job.about.limit != 0 || !job.sources.empty() || !all_v4(job.workers) ||
        !all_v4(job.servers)) {
      return ok_status();
    }
    atp_xdp_job value{};
    value.groups = job.about.groups;
    value.second_level = job.about.second_level ? 1 : 0;
    value.window = job.about.window;
    set_starts(aggregate_job(job), value);
    for (const net::SocketAddress& worker : job.workers) {
      value.workers[value.worker_count++] = end_of(worker, options_);
    }
    for (const net::SocketAddress& server : job.servers) {
      value.servers[value.server_count++] = end_of(server, options_);
      if (!options_.next_hop) make_known(server);
    }
    const std::vector<atp_xdp_counters> zeros(processors());
    THALWEG_TRY_STATUS(set("counters", job.id, zeros.data()));
    THALWEG_TRY_STATUS(set("jobs", job.id, &value));
    jobs_.insert(job.id);
    return ok_status();
  }

  void remove(std::uint32_t id) {
    if (jobs_.erase(id) == 0) return;
    bpf_map_delete_elem(map("jobs"), &id);
    bpf_map_delete_elem(map("counters"), &id);
  }

  void set_starts(const switches::AggregateJob& job, atp_xdp_job& value) const {
    std::uint64_t next = switches::AggregateTable::first_slot(job, options_.slots);
    const auto place = [&](std::size_t which) {
      value.starts[which] = static_cast<std::uint32_t>(next % options_.slots);
      next += switches::AggregateTable::slots_between(job, options_.slots);
    };
    for (unsigned g = 0; g < static_cast<unsigned>(ATP_XDP_ENDS); ++g) {
      if ((job.groups & wire::atp_bit(g)) != 0) place(g);
    }
    place(ATP_XDP_ENDS);
  }

  [[nodiscard]] SwitchPlane::Counters counters(std::uint32_t id) const {
    SwitchPlane::Counters out;
    const std::vector<atp_xdp_counters> each = counted(id);
    if (each.empty()) return out;
    const auto add = [&](const char* name, auto count_of) {
      std::uint64_t sum = 0;
      for (const atp_xdp_counters& one : each) sum += count_of(one);
      out.emplace_back(name, sum);
    };
    for (int i = 0; i < switches::kAggregateCauseCount; ++i) {
      add(switches::name_of(static_cast<switches::AggregateAction::Cause>(i)),
          [&](const atp_xdp_counters& one) { return one.packets[i]; });
    }
    add("partial_sums", [](const atp_xdp_counters& one) { return one.partial_sums; });
    return out;
  }

  void add_traffic(const AdmittedJob& job, std::vector<SwitchPlane::Port>& ports) const {
    const auto add = [](SwitchPlane::Counters& to, std::string_view name, std::uint64_t count) {
      std::ranges::find(to, name, &SwitchPlane::Counters::value_type::first)->second += count;
    };
    for (const atp_xdp_counters& one : counted(job.id)) {
      for (std::size_t w = 0; w < job.workers.size(); ++w) {
        add(ports[w].counters, "packets_in", one.from_workers[w].packets);
        add(ports[w].counters, "bytes_in", one.from_workers[w].bytes);
      }
      for (std::size_t s = 0; s < job.servers.size(); ++s) {
        SwitchPlane::Counters& server = ports[job.workers.size() + s].counters;
        add(server, "packets_out", one.to_servers[s].packets);
        add(server, "bytes_out", one.to_servers[s].bytes);
      }
    }
  }

  [[nodiscard]] Result<Outcome> run(std::span<const std::byte> frame,
                                    std::span<std::byte> out) const {
    bpf_test_run_opts run{};
    run.sz = sizeof(run);
    run.data_in = frame.data();
    run.data_size_in = static_cast<std::uint32_t>(frame.size());
    run.data_out = out.data();
    run.data_size_out = static_cast<std::uint32_t>(out.size());
    run.repeat = 1;
    if (const int failure = bpf_prog_test_run_opts(program(), &run); failure != 0) {
      return net::system_error("xdp: cannot run the program", -failure);
    }
    Outcome outcome;
    outcome.size = run.data_size_out;
    outcome.duration = std::chrono::nanoseconds(run.duration);
    outcome.verdict = run.retval == XDP_PASS   ? Verdict::kToProcess
                      : run.retval == XDP_DROP ? Verdict::kDropped
                                               : Verdict::kSent;
    return outcome;
  }

 private:
  // The counters of a job on each processor; empty for a job that is not installed here.
  [[nodiscard]] std::vector<atp_xdp_counters> counted(std::uint32_t id) const {
    if (!jobs_.contains(id)) return {};
    std::vector<atp_xdp_counters> each(processors());
    if (bpf_map_lookup_elem(map("counters"), &id, each.data()) != 0) return {};
    return each;
  }
  static std::size_t processors() { return static_cast<std::size_t>(libbpf_num_possible_cpus()); }
  [[nodiscard]] int program() const {
    return bpf_program__fd(bpf_object__find_program_by_name(object_.get(), "atp_switch"));
  }
  [[nodiscard]] int map(const char* name) const {
    return bpf_object__find_map_fd_by_name(object_.get(), name);
  }
  Status set(const char* name, std::uint32_t key, const void* value) const {
    if (bpf_map_update_elem(map(name), &key, value, BPF_ANY) == 0) return ok_status();
    return net::system_error(fmt::format("xdp: cannot set '{}'", name), errno);
  }

  XdpOptions options_;
  std::unique_ptr<bpf_object, decltype(&bpf_object__close)> object_;
  std::vector<net::Fd> links_;  // BPF links: attachments to devices
  std::set<std::uint32_t> jobs_;
};

XdpPlane::XdpPlane(std::unique_ptr<Core> core) : core_(std::move(core)) {}
XdpPlane::~XdpPlane() = default;

Result<std::unique_ptr<XdpPlane>> XdpPlane::load(const XdpOptions& options) {
  if (options.data.family() != AF_INET) {
    return Error(fmt::format("xdp: data '{}'; IPv4 is allowed", options.data.to_string()));
  }
  libbpf_set_print(keep_quiet);
  bpf_object* const object =
      bpf_object__open_mem(kAtpSwitchProgram, sizeof(kAtpSwitchProgram), nullptr);
  CHECK(object != nullptr, "the XDP program cannot be read");
  auto core = std::make_unique<Core>(options, object);
  bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "slots"), options.slots);
  if (const int failure = bpf_object__load(object); failure != 0) {
    return net::system_error("xdp: cannot load the program", -failure);
  }
  THALWEG_TRY_STATUS(core->start());
  return std::unique_ptr<XdpPlane>(new XdpPlane(std::move(core)));
}

Status XdpPlane::attach(const std::string& device, bool generic) {
  return core_->attach(device, generic);
}
Status XdpPlane::install(const AdmittedJob& job) { return core_->install(job); }
void XdpPlane::remove(std::uint32_t id) { core_->remove(id); }
SwitchPlane::Counters XdpPlane::counters(std::uint32_t id) const { return core_->counters(id); }
void XdpPlane::add_traffic(const AdmittedJob& job, std::vector<SwitchPlane::Port>& ports) const {
  core_->add_traffic(job, ports);
}
Result<XdpPlane::Outcome> XdpPlane::run(std::span<const std::byte> frame,
                                        std::span<std::byte> out) const {
  return core_->run(frame, out);
}

}  // namespace thalweg::switchd
