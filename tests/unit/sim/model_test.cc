#include "sim/workload/model.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

namespace thalweg::sim {
namespace {

constexpr std::string_view kGoodModel = R"(name: small
batch: 32
sample: 8x8 image
dtype: float32
device: NVIDIA H200
device_scale: 2.5
torch: "2.11.0"
date: "2026-11-15"
notes: made up
layers:
  - {name: conv, params: 9408, forward_us: 12.345, backward_us: 30}
  - name: norm
    params: 128
    tensors: [64, 64]
    forward_us: 0
    backward_us: 0.000001
)";

std::string model_error_of(std::string_view text) {
  const Result<ModelTable> result = model_from_yaml(text, "net.yaml");
  return result.ok() ? "no error" : result.error().message();
}

// kGoodModel with one piece of text replaced.
std::string error_with(std::string_view old_text, std::string_view new_text) {
  std::string text(kGoodModel);
  const std::size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return model_error_of(text.replace(at, old_text.size(), new_text));
}

ModelTable good() { return model_from_yaml(kGoodModel, "net.yaml").value(); }

TEST(Model, from_yaml__every_field) {
  const Result<ModelTable> result = model_from_yaml(kGoodModel, "net.yaml");
  ASSERT_TRUE(result.ok()) << result.error().message();
  const ModelTable& table = *result;
  EXPECT_EQ(table.name, "small");
  EXPECT_EQ(table.batch, 32);
  EXPECT_EQ(table.sample, "8x8 image");
  EXPECT_EQ(table.device, "NVIDIA H200");
  EXPECT_EQ(table.device_scale, 2.5);
  EXPECT_EQ(table.dtype, DType::kFloat32);
  ASSERT_EQ(table.layers.size(), 2U);
  EXPECT_EQ(table.layers[0], (ModelLayer{"conv",
                                         9408,
                                         {9408},
                                         Duration::nanoseconds(30'862) + Duration::picoseconds(500),
                                         Duration::microseconds(75)}));
  // 1 ps, scaled and rounded.
  EXPECT_EQ(table.layers[1],
            (ModelLayer{"norm", 128, {64, 64}, Duration(), Duration::picoseconds(3)}));
}

TEST(Model, from_yaml__defaults) {
  const Result<ModelTable> table = model_from_yaml(
      "{name: n, batch: 1, device: d, layers: [{name: l, params: 5, forward_us: 1, backward_us: "
      "2}]}",
      "net.yaml");
  ASSERT_TRUE(table.ok()) << table.error().message();
  EXPECT_EQ(table->dtype, DType::kFloat32);
  EXPECT_EQ(table->device_scale, 1);
  EXPECT_EQ(table->sample, "");
  EXPECT_EQ(table->layers[0].forward, Duration::microseconds(1));
}

TEST(Model, totals__sum_the_layers) {
  ModelTable table = good();
  EXPECT_EQ(table.parameters(), 9536);
  EXPECT_EQ(table.size(), Bytes(9536) * 4);
  EXPECT_EQ(table.size_of_layer(1), Bytes(512));
  EXPECT_EQ(table.forward_time(), table.layers[0].forward);
  EXPECT_EQ(table.backward_time(), Duration::microseconds(75) + Duration::picoseconds(3));
  table.dtype = DType::kBFloat16;
  EXPECT_EQ(table.size(), Bytes(9536) * 2);
}

TEST(Model, slowed_down__scales_times_only) {
  const Result<ModelTable> slow = slowed_down(good(), 4);
  ASSERT_TRUE(slow.ok()) << slow.error().message();
  EXPECT_EQ(slow->device_scale, 10);
  EXPECT_EQ(slow->layers[0].forward, good().layers[0].forward * 4);
  EXPECT_EQ(slow->layers[0].backward, Duration::microseconds(300));
  EXPECT_EQ(slow->parameters(), good().parameters());
}

TEST(Model, part_of__shrinks_tensors_times_and_samples_alike) {
  const ModelTable all = good();
  const ModelTable part = part_of(all, 0.25);
  EXPECT_EQ(part.part, 0.25);
  EXPECT_EQ(part.batch, all.batch);
  std::int64_t sum = 0;
  for (std::size_t l = 0; l < part.layers.size(); ++l) {
    const ModelLayer& whole = all.layers[l];
    EXPECT_NEAR(part.layers[l].forward.s(), whole.forward.s() / 4, 1e-11);
    EXPECT_NEAR(part.layers[l].backward.s(), whole.backward.s() / 4, 1e-11);
    for (const std::int64_t elements : part.layers[l].tensors) {
      EXPECT_GE(elements, 1);
      sum += elements;
    }
  }
  EXPECT_EQ(part.parameters(), sum);
}

TEST(Model, slowed_down__refuses_what_a_file_may_not_say) {
  for (const double factor : {0.0, -1.0, 1e-9, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    const Result<ModelTable> slow = slowed_down(good(), factor);
    ASSERT_FALSE(slow.ok()) << factor;
    EXPECT_NE(slow.error().message().find("out of range: 0.001 to 1000"), std::string::npos);
  }
  ModelTable table = good();
  table.layers[0].forward = kMaxComputeTime - Duration::milliseconds(1000);
  EXPECT_EQ(slowed_down(table, 2).error().message(),
            "model 'small': an iteration, scaled, computes longer than 86400s: lower the times or "
            "'device_scale'");
}

TEST(Model, errors__name_the_line) {
  EXPECT_EQ(error_with("batch: 32", "batch: 0"),
            "net.yaml: line 2: 'batch': '0' is not a whole number from 1 to 1000000000");
  EXPECT_EQ(error_with("batch: 32", "batch: [32]"),
            "net.yaml: line 2: 'batch' must be a single value, not a list");
  EXPECT_EQ(error_with("batch: 32\n", ""), "net.yaml: line 1: the model has no 'batch'");
  EXPECT_EQ(error_with("batch: 32", "batch:"),
            "net.yaml: line 2: key 'batch' in the model has no value");
  EXPECT_EQ(error_with("batch: 32", "name: again"),
            "net.yaml: line 2: key 'name' is given twice in the model; first at line 1");
  EXPECT_EQ(error_with("dtype: float32", "dtype: int8"),
            "net.yaml: line 4: 'dtype': 'int8' is none of float32, float64, float16, bfloat16, "
            "float8_e4m3fn, float8_e5m2");
  EXPECT_EQ(error_with("notes: made up", "note: made up"),
            "net.yaml: line 9: unknown key 'note' in the model; keys: name, batch, device, layers, "
            "sample, dtype, device_scale, torch, date, notes; did you mean 'notes'?");
  EXPECT_EQ(error_with("notes: made up", "notes: [made, up]"),
            "net.yaml: line 9: 'notes' must be a single value, not a list");
  EXPECT_EQ(
      error_with("NVIDIA H200", "\"\""),
      "net.yaml: line 5: 'device' is not allowed: use 1 to 128 bytes of UTF-8 without control "
      "characters");
  for (const char* scale : {"0", "-1", "1e3", "nan", "inf", "1001", "1x", "''"}) {
    EXPECT_EQ(error_with("device_scale: 2.5", std::string("device_scale: ") + scale),
              "net.yaml: line 6: 'device_scale': '" +
                  (std::string(scale) == "''" ? "" : std::string(scale)) +
                  "' is not a number from 0.001 to 1000");
  }
}

TEST(Model, errors__of_layers_name_the_line) {
  EXPECT_EQ(error_with("forward_us: 12.345", "forward_us: -1"),
            "net.yaml: line 11: 'forward_us': '-1' is not a number from 0 to 1000000000");
  EXPECT_EQ(error_with("forward_us: 12.345", "forward_us: 12us"),
            "net.yaml: line 11: 'forward_us': '12us' is not a number from 0 to 1000000000");
  EXPECT_EQ(error_with("forward_us: 12.345, ", ""),
            "net.yaml: line 11: a layer has no 'forward_us'");
  EXPECT_EQ(
      error_with("forward_us", "forward_ms"),
      "net.yaml: line 11: unknown key 'forward_ms' in a layer; keys: name, params, forward_us, "
      "backward_us, tensors; did you mean 'forward_us'?");
  EXPECT_EQ(error_with("params: 9408", "params: 9408.5"),
            "net.yaml: line 11: 'params': '9408.5' is not a whole number from 1 to 1000000000000");
  EXPECT_EQ(error_with("name: norm", "name: conv"),
            "net.yaml: line 12: layer name 'conv' is used twice; first at line 11");
  EXPECT_EQ(error_with("[64, 64]", "[64, 65]"),
            "net.yaml: line 14: 'tensors' add up to more, but 'params' is 128");
  EXPECT_EQ(error_with("[64, 64]", "[64]"),
            "net.yaml: line 14: 'tensors' add up to 64, but 'params' is 128");
  EXPECT_EQ(error_with("[64, 64]", "[]"),
            "net.yaml: line 14: 'tensors' add up to 0, but 'params' is 128");
  EXPECT_EQ(error_with("[64, 64]", "[64, 0, 64]"),
            "net.yaml: line 14: 'tensors': '0' is not a whole number from 1 to 1000000000000");
  EXPECT_EQ(error_with("[64, 64]", "128"),
            "net.yaml: line 14: 'tensors' must be a list of element counts");
  EXPECT_EQ(
      error_with("backward_us: 30", "backward_us: 100000000000"),
      "net.yaml: line 11: 'backward_us': '100000000000' is not a number from 0 to 1000000000");
}

TEST(Model, errors__of_the_whole) {
  EXPECT_EQ(model_error_of(""), "net.yaml: line 1: the file is empty");
  EXPECT_EQ(model_error_of("just text"),
            "net.yaml: line 1: the model must be a map with the keys name, batch, device, layers, "
            "sample, dtype, device_scale, torch, date, notes");
  EXPECT_EQ(model_error_of("name: n\nbatch: 1\ndevice: d\nlayers: []\n"),
            "net.yaml: line 4: 'layers' is empty: at least one layer is needed");
  EXPECT_EQ(model_error_of("name: n\nbatch: 1\ndevice: d\nlayers: {a: 1}\n"),
            "net.yaml: line 4: 'layers' must be a list");
  EXPECT_EQ(model_error_of("name: n\nbatch: 1\ndevice: d\nlayers:\n  - conv\n"),
            "net.yaml: line 5: a layer must be a map with the keys name, params, forward_us, "
            "backward_us, tensors");
  EXPECT_EQ(model_error_of("name: {\n").substr(0, 9), "net.yaml:");
  EXPECT_EQ(
      model_error_of("name: \xff\n"),
      "net.yaml: line 1: byte 0xff is not text: UTF-8 without control characters is expected");
}

TEST(Model, limits__a_day_of_computing) {
  std::string text = "name: n\nbatch: 1\ndevice: d\ndevice_scale: 90\nlayers:\n";
  text += "  - {name: a, params: 1, forward_us: 900000000, backward_us: 0}\n";
  EXPECT_EQ(model_error_of(text), "no error");
  text += "  - {name: b, params: 1, forward_us: 0, backward_us: 900000000}\n";
  EXPECT_EQ(
      model_error_of(text),
      "net.yaml: line 7: an iteration, scaled, computes longer than 86400s: lower the times or "
      "'device_scale'");
}

TEST(Model, limits__aliases_cannot_multiply_tensors) {
  constexpr int kTensors = 4096;
  std::string list = "1";
  for (int i = 1; i < kTensors; ++i) list += ",1";
  std::string text = "name: n\nbatch: 1\ndevice: d\nlayers:\n";
  const std::size_t enough = kMaxModelTensors / kTensors;
  for (std::size_t i = 0; i <= enough; ++i) {
    text += "  - {name: l" + std::to_string(i) + ", params: 4096, forward_us: 0, backward_us: 0, ";
    text += i == 0 ? "tensors: &t [" + list + "]}\n" : "tensors: *t}\n";
    if (i + 1 == enough) {
      EXPECT_EQ(model_error_of(text), "no error");
    }
  }
  // yaml-cpp gives the line of the list, not of the reference to it.
  EXPECT_EQ(model_error_of(text), "net.yaml: line 5: the model has more than 1048576 tensors");
}

std::filesystem::path models_folder() {
  return std::filesystem::path(__FILE__).parent_path() / "../../../models";
}

struct Published {
  std::string_view name;
  std::int64_t parameters;
};

// The numbers of the networks' authors or of their reference implementations (torchvision,
// transformers).
constexpr std::array<Published, 12> kPublished{{
    {"alexnet", 61'100'840},
    {"vgg16", 138'357'544},
    {"googlenet", 6'624'904},
    {"inception_v3", 23'834'568},
    {"resnet18", 11'689'512},
    {"resnet50", 25'557'032},
    {"resnet101", 44'549'160},
    {"wide_resnet50_2", 68'883'240},
    {"bert_base", 109'482'240},
    {"bert_large", 335'141'888},
    {"transformer", 63'082'496},
    {"gpt2", 124'439'808},
}};

Result<ModelTable> read_model(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return model_from_yaml(text.str(), path.filename().string());
}

TEST(Model, files__match_published_counts) {
  for (const auto& [name, parameters] : kPublished) {
    SCOPED_TRACE(name);
    const Result<ModelTable> table = read_model(models_folder() / (std::string(name) + ".yaml"));
    ASSERT_TRUE(table.ok()) << table.error().message();
    EXPECT_EQ(table->parameters(), parameters);
  }
}

TEST(Model, files__make_sense) {
  for (const auto& entry : std::filesystem::directory_iterator(models_folder())) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path());
    const Result<ModelTable> table = read_model(entry.path());
    ASSERT_TRUE(table.ok()) << table.error().message();
    EXPECT_EQ(table->name, entry.path().stem().string());
    EXPECT_EQ(table->dtype, DType::kFloat32);
    EXPECT_GT(table->forward_time(), Duration::microseconds(20));
    // A backward pass does about twice the work of a forward pass.
    EXPECT_GT(table->backward_time(), table->forward_time());
    EXPECT_LT(table->backward_time(), table->forward_time() * 4);
    for (const ModelLayer& layer : table->layers) {
      EXPECT_EQ(std::accumulate(layer.tensors.begin(), layer.tensors.end(), std::int64_t{0}),
                layer.parameters);
    }
  }
}

}  // namespace
}  // namespace thalweg::sim
