// Files that a user names: what is no small regular file is refused at once.
#include "net/io/small_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/messages.h"
#include "net/io/fd.h"
#include "net/net_pair.h"

namespace thalweg::net {
namespace {

class SmallFile : public testing::Test {
 protected:
  SmallFile() {
    folder_ = testing::TempDir() + "thalweg-small-file-" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  ~SmallFile() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

// The error of read_job_key(), or a sentence if it does not return within two seconds. It may then
// go on reading until the test ends.
std::string key_error(const std::string& path) {
  auto* const answer =
      new std::future(std::async(std::launch::async, [path] { return read_job_key(path); }));
  if (answer->wait_for(seconds(2)) != std::future_status::ready) return "still reading";
  const std::string error = message_of(answer->get());
  delete answer;
  return error;
}

TEST_F(SmallFile, read_job_key__a_pipe_is_refused_at_once) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(key_error(path("pipe")), "cannot read the job key from " + path("pipe") +
                                         ": it is a pipe; a regular file is allowed");
}

TEST_F(SmallFile, read_job_key__a_device_a_folder_and_a_socket_are_refused) {
  EXPECT_TRUE(says(key_error("/dev/zero"), "it is a device; a regular file is allowed"));
  EXPECT_TRUE(says(key_error(path(".")), "it is a folder; a regular file is allowed"));
  const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  ASSERT_LT(path("socket").size(), sizeof(place.sun_path));
  std::strcpy(place.sun_path, path("socket").c_str());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  EXPECT_TRUE(says(key_error(path("socket")), "it is a socket; a regular file is allowed"));
  EXPECT_TRUE(says(key_error(path("none")), "No such file"));
}

TEST_F(SmallFile, read_job_key__a_large_file_is_refused) {
  std::ofstream(path("large")) << "0123456789abcdef0123456789abcdef\n";
  std::filesystem::resize_file(path("large"), std::uintmax_t{1} << 32);
  EXPECT_TRUE(says(key_error(path("large")), "it has more than 4096 bytes"));
}

TEST_F(SmallFile, read_small_file__up_to_the_limit) {
  std::ofstream(path("list")) << "12345";
  EXPECT_EQ(read_small_file(path("list"), "the list", 5).value(), "12345");
  EXPECT_EQ(message_of(read_small_file(path("list"), "the list", 4)),
            "cannot read the list from " + path("list") +
                ": it has more than 4 bytes, the most that are allowed");
  // The system says that such a file has no bytes.
  EXPECT_NE(read_small_file("/proc/self/status", "the status", 1 << 20).value(), "");
}

}  // namespace
}  // namespace thalweg::net
