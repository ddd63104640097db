#include "lab/sweep/mpi_ranks.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lab/mpi_module/mpi_module.h"

namespace thalweg::lab {
namespace {

struct Launcher {
  const char* rank;
  const char* count;
};
constexpr std::array<Launcher, 3> kLaunchers{{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                              {"PMI_RANK", "PMI_SIZE"},
                                              {"PMIX_RANK", "SLURM_NTASKS"}}};

std::size_t number_in(const char* variable, std::size_t otherwise) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): none is set
  if (text == nullptr) return otherwise;
  std::size_t value = 0;
  const std::string_view view(text);
  const auto [rest, failure] = std::from_chars(view.data(), view.data() + view.size(), value);
  return failure == std::errc{} && rest == view.data() + view.size() ? value : otherwise;
}

Result<void*> load_module() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::string path = program.parent_path() / kMpiModuleFile;
  // The module is never unloaded: MPI libraries do not support that.
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    return Error(fmt::format("this is a rank of an MPI launcher, but its module does not load: {}",
                             dlerror()));
  }
  void* const symbol = dlsym(module, kMpiGatherName);
  if (symbol == nullptr) return Error(fmt::format("{} has no {}", path, kMpiGatherName));
  return symbol;
}

}  // namespace

MpiRanks mpi_ranks() {
  for (const Launcher& launcher : kLaunchers) {
    const MpiRanks ranks{.rank = number_in(launcher.rank, 0),
                         .count = number_in(launcher.count, 1)};
    if (ranks.count > 1 && ranks.rank < ranks.count) return ranks;
  }
  return {};
}

Status gather_texts(const MpiRanks& ranks, std::vector<std::string>& texts) {
  nlohmann::json mine = nlohmann::json::array();
  for (std::size_t i = ranks.rank; i < texts.size(); i += ranks.count) mine.push_back(texts[i]);
  THALWEG_TRY(void* const function, load_module());
  const auto gather = reinterpret_cast<MpiGather>(function);  // POSIX allows this
  const std::string sent = mine.dump();
  std::size_t rank = 0;
  const auto put = [&](std::string_view text) {
    const auto theirs = nlohmann::json::parse(text);
    for (std::size_t k = 0; k < theirs.size(); ++k) {
      texts[rank + k * ranks.count] = theirs[k].get<std::string>();
    }
    ++rank;
  };
  using Put = decltype(put);
  const auto deliver = [](void* context, const char* data, std::size_t size) {
    (*static_cast<const Put*>(context))(std::string_view(data, size));
  };
  char error[256] = {};
  const int failed =
      gather(sent.data(), sent.size(), ranks.rank, ranks.count, deliver,
             const_cast<void*>(static_cast<const void*>(&put)), error, sizeof(error));
  if (failed != 0) return Error(fmt::format("gathering over MPI: {}", error));
  return ok_status();
}

}  // namespace thalweg::lab
