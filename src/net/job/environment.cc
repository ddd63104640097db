#include "net/job/environment.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <thalweg/endpoint.h>

#include "base/number.h"
#include "net/atp/switch_list.h"
#include "net/auth/hello.h"
#include "net/io/address.h"
#include "net/job/slurm.h"

namespace thalweg::net {
namespace {

// Below the range of ports that systems assign by themselves.
constexpr std::uint64_t kFirstDerivedPort = 20'000;
constexpr std::uint64_t kDerivedPorts = 12'000;
constexpr std::size_t kMaxInterfaceName = 45;  // of a name or an address; addresses may be longer

// The variables of a launcher; "" if it does not have the variable.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr std::array<Launcher, 6> kLaunchers{{
    {"thalweg", "THALWEG_RANK", "THALWEG_SIZE", "THALWEG_LOCAL_RANK", "THALWEG_LOCAL_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
}};

Error bad_value(const std::string& name, const std::string& value, const std::string& allowed) {
  return Error(fmt::format("{}: '{}' is not allowed: {}", name, value, allowed));
}

// Whether the text of the address says so: a name may mean a loopback address on its own host only.
bool is_loopback_text(const std::string& store) {
  if (store.starts_with("localhost:")) return true;
  const Result<SocketAddress> address = SocketAddress::numeric(store);
  return address.ok() && address->loopback();
}

// FNV-1a: the same on every machine.
std::uint64_t token_from(std::string_view text) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100'0000'01b3;
  }
  return hash;
}

class VariableReader {
 public:
  explicit VariableReader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  Result<Environment> read();

 private:
  [[nodiscard]] std::optional<std::string> get(const std::string& name) const {
    std::optional<std::string> value = lookup_(name);
    return value && value->empty() ? std::nullopt : value;
  }
  [[nodiscard]] bool has(const char* name) const { return get(name).has_value(); }

  Result<int> number(const std::string& name, int low, int high) const;
  Result<std::optional<int>> maybe_number(const std::string& name, int low, int high) const;
  // The launcher whose variables count; null if the process is alone.
  Result<const Launcher*> launcher() const;
  Status read_ranks(const Launcher& launcher);
  Status read_local_ranks(const Launcher& launcher);
  Status read_token();
  Status read_interfaces();
  Status read_streams();
  Status read_payload();
  // Whether the variable is 1 or not set; 0 switches it off.
  Result<bool> switched_on(const std::string& name);
  Status read_checksum();
  Status read_encrypt();
  Status read_switch();
  Status read_store();
  Result<std::string> store_of_master() const;
  Result<std::string> store_of_launcher() const;
  // The launcher's name for the job: the same on all ranks, and different for every job.
  [[nodiscard]] std::string job_name() const;

  const EnvironmentLookup& lookup_;
  Environment e_;
};

Result<int> VariableReader::number(const std::string& name, int low, int high) const {
  const std::string text = get(name).value_or("");
  const std::optional<int> value = number_in<int>(text);
  if (!value || *value < low || *value > high) {
    return bad_value(name, text, fmt::format("a whole number from {} to {}", low, high));
  }
  return *value;
}

Result<std::optional<int>> VariableReader::maybe_number(const std::string& name, int low,
                                                        int high) const {
  if (name.empty() || !has(name.c_str())) return std::optional<int>();
  THALWEG_TRY(const int value, number(name, low, high));
  return std::optional(value);
}

Result<const Launcher*> VariableReader::launcher() const {
  for (const Launcher& launcher : kLaunchers) {
    // A Slurm batch script also has the variables of tasks, but is not one of them.
    const bool within_job = std::string_view(launcher.name) != "srun" || has("SLURM_STEP_NODELIST");
    if (within_job && has(launcher.rank) && has(launcher.size)) return &launcher;
  }
  for (const Launcher& launcher : kLaunchers) {
    if (std::string_view(launcher.name) == "srun" || has(launcher.rank) == has(launcher.size)) {
      continue;
    }
    return Error(fmt::format("{} is set, but {} is not: a rank needs both",
                             has(launcher.rank) ? launcher.rank : launcher.size,
                             has(launcher.rank) ? launcher.size : launcher.rank));
  }
  return nullptr;
}

Status VariableReader::read_ranks(const Launcher& launcher) {
  THALWEG_TRY(e_.size, number(launcher.size, 1, kMaxJobSize));
  const Result<int> rank = number(launcher.rank, 0, e_.size - 1);
  if (!rank.ok()) {
    return Error(fmt::format("{}, as {} is {}", rank.error().message(), launcher.size, e_.size));
  }
  e_.rank = *rank;
  e_.launcher = launcher.name;
  return read_local_ranks(launcher);
}

Status VariableReader::read_local_ranks(const Launcher& launcher) {
  const std::string size_name =
      has("THALWEG_LOCAL_SIZE") ? "THALWEG_LOCAL_SIZE" : launcher.local_size;
  const std::string rank_name =
      has("THALWEG_LOCAL_RANK") ? "THALWEG_LOCAL_RANK" : launcher.local_rank;
  THALWEG_TRY(e_.local_size, maybe_number(size_name, 1, e_.size));
  if (size_name.empty() && has("SLURM_STEP_TASKS_PER_NODE") && has("SLURM_NODEID")) {
    THALWEG_TRY(const int node, number("SLURM_NODEID", 0, kMaxJobSize));
    const std::string text = *get("SLURM_STEP_TASKS_PER_NODE");
    e_.local_size = slurm_tasks_of_node(text, node);
    if (!e_.local_size || *e_.local_size > e_.size) {
      return bad_value("SLURM_STEP_TASKS_PER_NODE", text,
                       fmt::format("counts such as 4(x2),3 that reach node {}", node));
    }
  }
  THALWEG_TRY(e_.local_rank, maybe_number(rank_name, 0, e_.local_size.value_or(e_.size) - 1));
  return ok_status();
}

Status VariableReader::read_token() {
  const std::optional<std::string> text = get("THALWEG_TOKEN");
  if (!text) {
    e_.token = token_from(job_name() + " " + e_.store);
    e_.token_desk = fmt::format("thalweg.{:016x}", e_.token);
    // A newcomer has the store's address only, and no launcher.
    e_.newcomers_desk = fmt::format("thalweg.join.{:016x}", token_from(e_.store));
    return ok_status();
  }
  const auto [end, failure] =
      std::from_chars(text->data(), text->data() + text->size(), e_.token, 16);
  if (failure != std::errc() || end != text->data() + text->size()) {
    // The message does not show the value, which is secret.
    return Error("THALWEG_TOKEN: must be 1 to 16 hexadecimal digits");
  }
  return ok_status();
}

Status VariableReader::read_interfaces() {
  const std::optional<std::string> text = get("THALWEG_INTERFACE");
  if (!text) return ok_status();
  for (std::size_t at = 0; at <= text->size();) {
    const std::size_t comma = std::min(text->find(',', at), text->size());
    std::string name = text->substr(at, comma - at);
    if (name.empty() || name.size() > kMaxInterfaceName) {
      return bad_value("THALWEG_INTERFACE", *text,
                       "names of interfaces or addresses of this host, as in eth0,eth1");
    }
    if (std::ranges::find(e_.interfaces, name) != e_.interfaces.end()) {
      return bad_value("THALWEG_INTERFACE", *text,
                       fmt::format("'{}' is there twice; each once is allowed", name));
    }
    if (e_.interfaces.size() == kMaxInterfaces) {
      return bad_value("THALWEG_INTERFACE", *text, fmt::format("at most {}", kMaxInterfaces));
    }
    e_.interfaces.push_back(std::move(name));
    at = comma + 1;
  }
  return ok_status();
}

Status VariableReader::read_streams() {
  THALWEG_TRY(const std::optional<int> streams, maybe_number("THALWEG_STREAMS", 1, kMaxStreams));
  e_.streams = streams.value_or(1);
  THALWEG_TRY(e_.channels, maybe_number("THALWEG_CHANNELS", 1, kMaxChannels));
  return read_payload();
}

Status VariableReader::read_payload() {
  constexpr int kUnit = 8;
  constexpr int kMost = 8960;  // of a jumbo frame
  THALWEG_TRY(e_.dlcp_payload, maybe_number("THALWEG_DLCP_PAYLOAD", kUnit, kMost));
  if (e_.dlcp_payload.value_or(0) % kUnit != 0) {
    return bad_value("THALWEG_DLCP_PAYLOAD", std::to_string(*e_.dlcp_payload),
                     fmt::format("a multiple of {}", kUnit));
  }
  THALWEG_TRY(const std::optional<int> paths, maybe_number("THALWEG_DLCP_PATHS", 1, kMaxPaths));
  e_.dlcp_paths = paths.value_or(0);
  return ok_status();
}

Result<bool> VariableReader::switched_on(const std::string& name) {
  const std::string text = get(name).value_or("1");
  if (text != "0" && text != "1") return bad_value(name, text, "0 or 1");
  return text == "1";
}

Status VariableReader::read_checksum() {
  THALWEG_TRY(const StreamChecks checks, stream_checks_from(lookup_));
  e_.checksum = checks != StreamChecks::kNone;
  e_.checksum_within_host = checks == StreamChecks::kAll;
  return ok_status();
}

Status VariableReader::read_encrypt() {
  e_.key_file = get("THALWEG_KEY_FILE").value_or("");
  THALWEG_TRY(e_.encrypt, switched_on("THALWEG_ENCRYPT"));
  // Who asks for it by name must not get a job that is not encrypted.
  if (e_.encrypt && has("THALWEG_ENCRYPT") && e_.key_file.empty()) {
    return Error("THALWEG_ENCRYPT: '1' needs a job key (THALWEG_KEY_FILE)");
  }
  return ok_status();
}

Status VariableReader::read_switch() {
  e_.switches = get("THALWEG_SWITCH").value_or("");
  e_.topology = get("THALWEG_TOPOLOGY").value_or("");
  e_.host = get("THALWEG_HOST").value_or("");
  // A file is read by rank 0, when a communicator needs it.
  if (is_switch_file(e_.switches)) return ok_status();
  const auto list = parse_switch_list(e_.switches);
  return list.ok() ? ok_status() : Status(list.error().within("THALWEG_SWITCH"));
}

std::string VariableReader::job_name() const {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (const auto value = get(name)) return *value;
  }
  return get("SLURM_JOB_ID").value_or("") + "." + get("SLURM_STEP_ID").value_or("");
}

// PyTorch itself listens at MASTER_PORT, so the store takes the port next to it.
Result<std::string> VariableReader::store_of_master() const {
  for (const char* missing : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (!has(missing)) return Error(fmt::format("{} is not set, but the other is", missing));
  }
  constexpr int kLast = std::numeric_limits<std::uint16_t>::max();
  THALWEG_TRY(const int port, number("MASTER_PORT", 1, kLast));
  const int beside = port == kLast ? port - 1 : port + 1;
  const HostPort store{*get("MASTER_ADDR"), static_cast<std::uint16_t>(beside)};
  if (!HostPort::parse(store.to_string()).ok()) {
    return bad_value("MASTER_ADDR", store.host, "a host name or an address");
  }
  return store.to_string();
}

// Derives the store's address from the launcher's variables, if they tell enough.
Result<std::string> VariableReader::store_of_launcher() const {
  const auto port =
      static_cast<std::uint16_t>(kFirstDerivedPort + token_from(job_name()) % kDerivedPorts);
  if (e_.launcher == "srun") {
    const std::string nodes = *get("SLURM_STEP_NODELIST");
    const std::string host = slurm_first_host(nodes);
    if (host.empty()) {
      return bad_value("SLURM_STEP_NODELIST", nodes, "a list of hosts such as node[01-04,07]");
    }
    return HostPort{host, port}.to_string();
  }
  if (e_.launcher == "mpirun" && e_.local_size == e_.size && has("PMIX_NAMESPACE")) {
    return HostPort{"127.0.0.1", port}.to_string();
  }
  return Error(
      fmt::format("{} does not say where the ranks meet: set THALWEG_STORE=host:port, or "
                  "MASTER_ADDR and MASTER_PORT, to the host of rank 0 and a free port of it, the "
                  "same for all {} ranks",
                  e_.launcher == "thalweg" ? "the environment" : e_.launcher, e_.size));
}

Status VariableReader::read_store() {
  if (const auto given = get("THALWEG_STORE")) {
    const auto parsed = HostPort::parse(*given);
    if (!parsed.ok() || parsed->port == 0) {
      return bad_value("THALWEG_STORE", *given, "host:port, with a port from 1 to 65535");
    }
    e_.store = *given;
  } else if (e_.size > 1) {
    const bool master = has("MASTER_ADDR") || has("MASTER_PORT");
    THALWEG_TRY(e_.store, master ? store_of_master() : store_of_launcher());
  }
  const std::string by = get("THALWEG_STORE_BY").value_or("rank0");
  if (by != "rank0" && by != "launcher") {
    return bad_value("THALWEG_STORE_BY", by, "rank0 or launcher");
  }
  e_.rank0_starts_store = by == "rank0";
  return ok_status();
}

Result<Environment> VariableReader::read() {
  THALWEG_TRY(const Launcher* const found, launcher());
  if (found == nullptr) {
    e_.local_rank = 0;
    e_.local_size = 1;
  } else {
    THALWEG_TRY_STATUS(read_ranks(*found));
  }
  THALWEG_TRY_STATUS(read_store());
  e_.one_host = is_loopback_text(e_.store) || (e_.size > 1 && e_.local_size == e_.size);
  THALWEG_TRY_STATUS(read_token());
  THALWEG_TRY_STATUS(read_interfaces());
  THALWEG_TRY_STATUS(read_streams());
  THALWEG_TRY(e_.shared_memory, switched_on("THALWEG_SHARED_MEMORY"));
  THALWEG_TRY_STATUS(read_checksum());
  THALWEG_TRY_STATUS(read_encrypt());
  THALWEG_TRY(e_.trials, switched_on("THALWEG_AUTO"));
  THALWEG_TRY_STATUS(read_switch());
  if (const auto debug = get("THALWEG_DEBUG")) {
    THALWEG_TRY(e_.debug, parse_debug_level(*debug));
  }
  return e_;
}

}  // namespace

Result<Environment> environment_from(const EnvironmentLookup& lookup) {
  return VariableReader(lookup).read();
}

Result<StreamChecks> stream_checks_from(const EnvironmentLookup& lookup) {
  const std::string text = lookup("THALWEG_CHECKSUM").value_or("");
  if (text.empty() || text == "1") return StreamChecks::kBetweenHosts;
  if (text == "0") return StreamChecks::kNone;
  if (text == "always") return StreamChecks::kAll;
  return bad_value("THALWEG_CHECKSUM", text, "0, 1 or always");
}

Result<std::optional<wire::JobKey>> job_key_from(const EnvironmentLookup& lookup) {
  const std::string file = lookup("THALWEG_KEY_FILE").value_or("");
  if (file.empty()) return std::optional<wire::JobKey>();
  Result<std::optional<wire::JobKey>> key = job_key_in(file);
  if (!key.ok()) return key.error().within("THALWEG_KEY_FILE");
  return key;
}

Result<std::optional<wire::JobKey>> job_key_given(const EnvironmentLookup& lookup,
                                                  const std::string& file) {
  if (file.empty()) return job_key_from(lookup);
  if (file == "none") return std::optional<wire::JobKey>();
  Result<std::optional<wire::JobKey>> key = job_key_in(file);
  if (!key.ok()) return key.error().within("--key-file");
  return key;
}

Result<std::optional<wire::JobKey>> job_key_in(const std::string& file) {
  THALWEG_TRY(const std::string text, read_job_key(file));
  THALWEG_TRY(const wire::JobKey key, wire::JobKey::from_hex(text));
  return std::optional(key);
}

EnvironmentLookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): none is set
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<std::string> store_listen_address(const std::string& store) {
  THALWEG_TRY(const SocketAddress address, SocketAddress::resolve(store));
  return address.loopback() ? store : fmt::format("*:{}", address.port());
}

}  // namespace thalweg::net
