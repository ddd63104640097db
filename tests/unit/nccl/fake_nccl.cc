#include "nccl/fake_nccl.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace thalweg::nccl {
namespace {

std::mutex log_mutex;
std::string log_text;

}  // namespace

const void* plugin_table(int version) {
  static void* const library = dlopen(THALWEG_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  if (library == nullptr) std::abort();
  const std::string name = "ncclNetPlugin_v" + std::to_string(version);
  const void* const table = dlsym(library, name.c_str());
  EXPECT_NE(table, nullptr) << name;
  return table;
}

__attribute__((format(printf, 5, 6))) void fake_logger(int level, unsigned long /*flags*/,
                                                       const char* /*file*/, int /*line*/,
                                                       const char* format, ...) {
  char text[1024];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(log_mutex);
  log_text += std::string(level == kNcclWarn ? "WARN " : "INFO ") + text + "\n";
}

std::string take_log() {
  const std::lock_guard lock(log_mutex);
  return std::exchange(log_text, "");
}

Initialized::Initialized(Variables variables) {
  variables.emplace_back("NCCL_SOCKET_IFNAME", "lo");
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 0);
    names_.push_back(name);
  }
  int config = -1;
  result_ = newest().init(&context_, 1, &config, fake_logger, nullptr);
}

Initialized::~Initialized() {
  newest().finalize(context_);
  for (const std::string& name : names_) unsetenv(name.c_str());
}

NcclResult Pair::listen() { return newest().listen(nullptr, 0, handle, &listener); }

NcclResult Pair::step() {
  void* offload = nullptr;
  if (sender == nullptr) {
    const NcclResult result = newest().connect(nullptr, 0, handle, &sender, &offload);
    if (result != NcclResult::kSuccess) return result;
  }
  if (receiver == nullptr) return newest().accept(listener, &receiver, &offload);
  return NcclResult::kSuccess;
}

NcclResult Pair::open() {
  NcclResult result = listen();
  const Patience patience;
  while (result == NcclResult::kSuccess && !complete() && !patience.over()) result = step();
  EXPECT_FALSE(patience.over());
  return result;
}

void Pair::close() {
  if (sender != nullptr) newest().close_send(sender);
  if (receiver != nullptr) newest().close_receive(receiver);
  if (listener != nullptr) newest().close_listen(listener);
  sender = receiver = listener = nullptr;
}

void* post_send(void* connection, void* data, std::size_t size) {
  void* request = nullptr;
  EXPECT_EQ(newest().isend(connection, data, size, 7, nullptr, nullptr, &request),
            NcclResult::kSuccess);
  return request;
}

void* post_receive(void* connection, void* data, std::size_t size) {
  void* request = nullptr;
  int tag = 7;
  void* memory = nullptr;
  void* profile = nullptr;
  EXPECT_EQ(newest().irecv(connection, 1, &data, &size, &tag, &memory, &profile, &request),
            NcclResult::kSuccess);
  return request;
}

NcclResult test_once(void* request, bool& done, int* size) {
  int over = 0;
  const NcclResult result = newest().test(request, &over, size);
  done = over == 1;
  return result;
}

NcclResult finish(std::vector<void*> requests) {
  const Patience patience;
  while (!requests.empty() && !patience.over()) {
    for (std::size_t i = 0; i < requests.size();) {
      bool done = false;
      const NcclResult result = test_once(requests[i], done);
      if (result != NcclResult::kSuccess) return result;
      if (done) {
        requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    std::this_thread::yield();
  }
  EXPECT_FALSE(patience.over());
  return NcclResult::kSuccess;
}

std::vector<std::byte> pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> bytes(size);
  std::size_t state = seed * 2654435761U + 12345;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

}  // namespace thalweg::nccl
