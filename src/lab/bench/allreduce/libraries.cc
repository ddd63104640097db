#include "lab/bench/allreduce/libraries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "lab/bench/allreduce/bare.h"
#include "lab/bench/allreduce/rank.h"
#include "lab/home.h"
#include "launch/job.h"
#include "net/group/channels/channels.h"
#include "net/io/system.h"
#include "net/job/environment.h"
#include "topology/format/load.h"

namespace thalweg::lab::allreduce {
namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::string own_program() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// The path of a script in the project's bench/allreduce.
Result<std::string> project_file(const char* name) {
  std::string path = home_folder() + "/bench/allreduce/" + name;
  if (exists(path)) return path;
  return Error(fmt::format("there is no {} (THALWEG_HOME names the folder of Thalweg)", path));
}

std::string device(const Stage& stage) {
  return stage.network() == nullptr ? "lo" : EmulatedNetwork::device();
}

// The names of a host's devices, with commas between them.
std::string devices(const Stage& stage) {
  std::string names = device(stage);
  for (int number = 1; stage.network() != nullptr && number < stage.network()->devices();
       ++number) {
    names += "," + EmulatedNetwork::device(number);
  }
  return names;
}

// One process per rank, each on its own host, with the variables that a launcher sets.
Result<std::vector<CrewProcess>> one_a_rank(const Work& work, std::vector<std::string> command,
                                            launch::Variables variables,
                                            std::optional<launch::Binding> bind) {
  std::vector<CrewProcess> processes;
  THALWEG_TRY(std::vector<launch::SupervisedProcess> ranks,
              launch::processes_of({.command = std::move(command),
                                    .variables = std::move(variables),
                                    .count = work.ranks,
                                    .bind = bind}));
  for (launch::SupervisedProcess& process : ranks) {
    processes.push_back({.command = std::move(process.command),
                         .environment = std::move(process.environment),
                         .host = static_cast<int>(processes.size()),
                         .cores = std::move(process.cores)});
  }
  return processes;
}

// Our own ranks are bound as `thalweg run` binds them, unless each is on an emulated host.
std::optional<launch::Binding> usual_binding(const Stage& stage) {
  if (stage.network() == nullptr) return std::nullopt;
  return launch::Binding::kNone;
}

Result<CrewPlan> gloo_plan(const Stage& stage, const Work& work) {
  THALWEG_TRY(const std::string script, project_file("gloo_rank.py"));
  const std::vector<std::string> command = {python_interpreter(), script, name_of(work.type),
                                            name_of(work.op), stage.folder() + "/gloo-store"};
  launch::Variables variables = {{"WORLD_SIZE", std::to_string(work.ranks)},
                                 {"GLOO_SOCKET_IFNAME", devices(stage)}};
  // Gloo has a thread of its own beside the caller's, and torchrun binds no rank.
  THALWEG_TRY(std::vector<CrewProcess> processes,
              one_a_rank(work, command, std::move(variables), launch::Binding::kNone));
  return CrewPlan{.library = "gloo",
                  .transport = "tcp",
                  .settings = fmt::format("torch.distributed.all_reduce, torch.set_num_threads(1), "
                                          "GLOO_SOCKET_IFNAME={}",
                                          devices(stage)),
                  .processes = std::move(processes)};
}

// The arguments of mpirun that say where ranks run. In an emulated network mpirun runs on the first
// host and starts ranks on the others through a script, as it would by ssh. It takes every host for
// a machine, so it has to be told when there are more ranks than cores (`crowded`), and not to bind
// all ranks to the same core.
Result<Words> openmpi_hosts(const Stage& stage, const Work& work, bool crowded) {
  if (stage.network() == nullptr) return crowded ? Words{"--oversubscribe"} : Words{};
  THALWEG_TRY(const std::string script, project_file("on_host.sh"));
  Words addresses;
  for (int host = 0; host < work.ranks; ++host) {
    addresses.push_back(EmulatedNetwork::address(host));
    std::error_code error;
    std::filesystem::create_symlink(stage.network()->path(host),
                                    stage.folder() + "/" + addresses.back(), error);
    if (error) return Error("openmpi: cannot write to " + stage.folder() + ": " + error.message());
  }
  Words words = {"--bind-to", "none",
                 "--host",    fmt::format("{}", fmt::join(addresses, ",")),
                 "-x",        kControlVariable};
  append(words, {"--mca", "plm_rsh_agent", script, "--mca", "plm_rsh_no_tree_spawn", "1"});
  append(words, {"--leave-session-attached", "--mca", "oob_tcp_if_include", device(stage)});
  if (crowded) append(words, {"--mca", "mpi_yield_when_idle", "1"});
  return words;
}

// Sets only which transport Open MPI takes and what it needs to run here at all.
Result<CrewPlan> openmpi_plan(const Stage& stage, const Work& work, bool shared_memory) {
  const std::string program =
      std::filesystem::path(own_program()).parent_path() / "thalweg_openmpi_rank";
  if (!exists(program)) {
    return Error(fmt::format("openmpi: {} is not there; `make build` builds it", program));
  }
  Words command = {"mpirun", "-n", std::to_string(work.ranks)};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  THALWEG_TRY(const Words hosts,
              openmpi_hosts(stage, work,
                            work.ranks > static_cast<int>(std::thread::hardware_concurrency())));
  append(command, hosts);
  if (!shared_memory) {
    append(command, {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self"});
    append(command, {"--mca", "btl_tcp_if_include", devices(stage)});
  }
  const std::string settings = fmt::format("{}", fmt::join(command, " "));
  append(command, {program, name_of(work.type), name_of(work.op)});
  return CrewPlan{.library = shared_memory ? "openmpi-shm" : "openmpi",
                  .transport = shared_memory ? "shm" : "tcp",
                  .settings = settings,
                  .processes = {{.command = command,
                                 .environment = {"THALWEG_BENCH_HOSTS=" + stage.folder()}}}};
}

// A store on the first host, and the variables by which ranks find it.
struct Meeting {
  std::shared_ptr<net::StoreServer> store;
  launch::Variables variables;
};
Result<Meeting> open_meeting(const Stage& stage, const Work& work) {
  launch::RunMeeting meeting{.size = work.ranks, .token = net::random_number()};
  THALWEG_TRY(const std::optional<wire::JobKey> key, net::job_key_from(net::process_environment()));
  const auto start = [&] {
    const std::string host = stage.network() == nullptr ? "127.0.0.1" : EmulatedNetwork::address(0);
    return net::StoreServer::start(host + ":0", meeting.token, key);
  };
  THALWEG_TRY(net::StoreServer store,
              stage.network() == nullptr ? start() : stage.network()->inside(0, start));
  meeting.store = store.address();
  return Meeting{.store = std::make_shared<net::StoreServer>(std::move(store)),
                 .variables = launch::variables_of(meeting)};
}

// Plain sockets instead of a library (bare.h): our own program in another mode.
Result<CrewPlan> bare_plan(const Stage& stage, const Work& work) {
  if (!std::has_single_bit(static_cast<unsigned>(work.ranks))) {
    return Error(
        fmt::format("--against bare: its ranks are a power of two, and {} is none: give "
                    "--ranks {} or leave it out",
                    work.ranks, std::bit_floor(static_cast<unsigned>(work.ranks))));
  }
  if (stage.network() != nullptr && stage.network()->devices() > 1) {
    return Error(
        "--against bare: it uses one device, which is no limit of several: leave out "
        "--nics or bare");
  }
  THALWEG_TRY(Meeting meeting, open_meeting(stage, work));
  const Words command = {own_program(),      "bench",          "allreduce-rank",
                         name_of(work.type), name_of(work.op), "--bare"};
  THALWEG_TRY(std::vector<CrewProcess> processes,
              one_a_rank(work, command, std::move(meeting.variables), usual_binding(stage)));
  return CrewPlan{.library = "bare",
                  .transport = "tcp",
                  .settings = fmt::format("halving-doubling, up to {} recursive doubling; a stream "
                                          "a pair, sched_yield() when nothing moves",
                                          to_string(most_doubled(work.ranks))),
                  .processes = std::move(processes),
                  .store = std::move(meeting.store)};
}

}  // namespace

std::vector<std::string> own_transports() { return {"tcp", "shm", "dlcp"}; }
std::vector<std::string> peer_names() { return {"gloo", "openmpi", "bare"}; }

Result<CrewPlan> own_plan(const Stage& stage, const Work& work, const OwnSettings& settings) {
  THALWEG_TRY(Meeting meeting, open_meeting(stage, work));
  Words command = {own_program(),    "bench",       "allreduce-rank",  name_of(work.type),
                   name_of(work.op), "--transport", settings.transport};
  std::string text = "scheme chosen by size";
  if (!settings.scheme.empty()) {
    append(command, {"--scheme", settings.scheme});
    text = "scheme " + settings.scheme;
  }
  if (stage.network() != nullptr && stage.network()->devices() > 1) {
    meeting.variables["THALWEG_INTERFACE"] = devices(stage);
    text += ", THALWEG_INTERFACE=" + devices(stage);
  }
  if (settings.streams > 1) {
    meeting.variables["THALWEG_STREAMS"] = std::to_string(settings.streams);
    text += fmt::format(", THALWEG_STREAMS={}", settings.streams);
  }
  // The ranks inherit our environment.
  if (const auto channels = net::process_environment()("THALWEG_CHANNELS")) {
    text += ", THALWEG_CHANNELS=" + *channels;
  } else if (settings.transport != "dlcp" && net::usual_channels(work.ranks) > 1) {
    text += fmt::format(", up to {} channels", net::usual_channels(work.ranks));
  }
  if (settings.topology != nullptr) {
    append(command, {"--topology", topology::topology_to_yaml(*settings.topology)});
  }
  if (settings.transport == "dlcp") {
    append(command, {"--bound", fmt::format("{}", settings.bound)});
    append(command, {"--rate-gbps", fmt::format("{}", settings.rate_gbps)});
    text += fmt::format(", loss bound {}", settings.bound);
    if (settings.rate_gbps > 0) text += fmt::format(", line rate {} Gb/s", settings.rate_gbps);
  }
  THALWEG_TRY(std::vector<CrewProcess> processes,
              one_a_rank(work, command, std::move(meeting.variables), usual_binding(stage)));
  return CrewPlan{.library = "thalweg",
                  .transport = settings.transport,
                  .scheme = settings.scheme,
                  .settings = text,
                  .processes = std::move(processes),
                  .store = std::move(meeting.store)};
}

Result<std::vector<CrewPlan>> peer_plans(const Stage& stage, const Work& work,
                                         const std::string& name) {
  std::vector<CrewPlan> plans;
  if (name == "gloo") {
    THALWEG_TRY(plans.emplace_back(), gloo_plan(stage, work));
    return plans;
  }
  if (name == "bare") {
    THALWEG_TRY(plans.emplace_back(), bare_plan(stage, work));
    return plans;
  }
  THALWEG_TRY(plans.emplace_back(), openmpi_plan(stage, work, false));
  if (stage.network() != nullptr) return plans;
  THALWEG_TRY(plans.emplace_back(), openmpi_plan(stage, work, true));
  return plans;
}

}  // namespace thalweg::lab::allreduce
