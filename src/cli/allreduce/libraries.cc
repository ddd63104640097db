#include "cli/allreduce/libraries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "cli/home.h"
#include "cli/run_job.h"
#include "net/system.h"

namespace thalweg::allreduce {
namespace {

std::string own_program() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string device(const Stage& stage) {
  return stage.network() == nullptr ? "lo" : EmulatedNetwork::kDevice;
}

// One process a rank, each on a host of its own, with the variables of a launcher.
std::vector<CrewProcess> one_a_rank(const Work& work, std::vector<std::string> command,
                                    Variables variables) {
  std::vector<CrewProcess> processes;
  for (SupervisedProcess& process : processes_of({.command = std::move(command),
                                                  .variables = std::move(variables),
                                                  .count = work.ranks})) {
    processes.push_back({.command = std::move(process.command),
                         .environment = std::move(process.environment),
                         .host = static_cast<int>(processes.size())});
  }
  return processes;
}

Result<CrewPlan> gloo_plan(const Stage& stage, const Work& work) {
  const std::string script = home_folder() + "/bench/allreduce/gloo_rank.py";
  if (!exists(script)) {
    return Error(
        fmt::format("gloo: there is no {} (THALWEG_HOME names the folder of Thalweg)", script));
  }
  const std::vector<std::string> command = {python_interpreter(), script, name_of(work.type),
                                            name_of(work.op), stage.folder() + "/gloo-store"};
  Variables variables = {{"WORLD_SIZE", std::to_string(work.ranks)},
                         {"GLOO_SOCKET_IFNAME", device(stage)}};
  return CrewPlan{.library = "gloo",
                  .transport = "tcp",
                  .settings = fmt::format("torch.distributed.all_reduce, torch.set_num_threads(1), "
                                          "GLOO_SOCKET_IFNAME={}",
                                          device(stage)),
                  .processes = one_a_rank(work, command, std::move(variables))};
}

// Settings of our own: which path it takes, and what lets it run here at all.
Result<CrewPlan> openmpi_plan(const Stage& stage, const Work& work, bool shared_memory) {
  const std::string program =
      std::filesystem::path(own_program()).parent_path() / "thalweg_openmpi_rank";
  if (!exists(program)) {
    return Error(fmt::format("openmpi: {} is not there; `make build` builds it", program));
  }
  std::vector<std::string> command = {"mpirun", "-n", std::to_string(work.ranks)};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  if (work.ranks > static_cast<int>(std::thread::hardware_concurrency())) {
    command.emplace_back("--oversubscribe");
  }
  if (!shared_memory) {
    for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::string>>{
             {"pml", "ob1"}, {"btl", "tcp,self"}, {"btl_tcp_if_include", device(stage)}}) {
      command.insert(command.end(), {"--mca", name, value});
    }
  }
  const std::string settings = fmt::format("{}", fmt::join(command, " "));
  command.insert(command.end(), {program, name_of(work.type), name_of(work.op)});
  return CrewPlan{.library = shared_memory ? "openmpi-shm" : "openmpi",
                  .transport = shared_memory ? "shm" : "tcp",
                  .settings = settings,
                  .processes = {{.command = command}}};
}

}  // namespace

std::vector<std::string> own_transports() { return {"tcp"}; }
std::vector<std::string> peer_names() { return {"gloo", "openmpi"}; }

Result<OwnPlan> own_plan(const Stage& stage, const Work& work, const std::string& transport,
                         const std::string& scheme) {
  RunMeeting meeting{.size = work.ranks, .token = random_number()};
  const auto start = [&] {
    const std::string host = stage.network() == nullptr ? "127.0.0.1" : EmulatedNetwork::address(0);
    return StoreServer::start(host + ":0", meeting.token);
  };
  THALWEG_TRY(StoreServer store,
              stage.network() == nullptr ? start() : stage.network()->inside(0, start));
  meeting.store = store.address();
  std::vector<std::string> command = {own_program(), "bench", "allreduce-rank", name_of(work.type),
                                      name_of(work.op)};
  if (!scheme.empty()) command.insert(command.end(), {"--scheme", scheme});
  return OwnPlan{.plan = {.library = "thalweg",
                          .transport = transport,
                          .settings = scheme.empty() ? "scheme chosen by size" : "scheme " + scheme,
                          .processes = one_a_rank(work, command, variables_of(meeting))},
                 .store = std::move(store)};
}

Result<std::vector<CrewPlan>> peer_plans(const Stage& stage, const Work& work,
                                         const std::string& name) {
  std::vector<CrewPlan> plans;
  if (name == "gloo") {
    THALWEG_TRY(plans.emplace_back(), gloo_plan(stage, work));
    return plans;
  }
  if (stage.network() != nullptr) {
    return Error("--against: openmpi cannot be measured with --netns");
  }
  THALWEG_TRY(plans.emplace_back(), openmpi_plan(stage, work, false));
  THALWEG_TRY(plans.emplace_back(), openmpi_plan(stage, work, true));
  return plans;
}

}  // namespace thalweg::allreduce
