"""Fuzz targets: one source with LLVMFuzzerTestOneInput, built twice.

    fuzz_target(name = "config", deps = ["//engine/model:families"])

makes, of config_target.cc,
  config_corpus_test  a test that runs every file of corpus/config/ through it;
  config_fuzzer       libFuzzer's program, for `bazel build --config=fuzz` (not part of //...).
"""

load("//third_party:millrace.bzl", "millrace_cc_binary", "millrace_cc_library", "millrace_cc_test")

def fuzz_target(name, deps, is_json = False, **kwargs):
    """See above. `is_json`: inputs are JSON, and are changed as such."""
    millrace_cc_library(
        name = name + "_target",
        testonly = True,
        srcs = [name + "_target.cc"],
        deps = deps,
        linkstatic = True,
        alwayslink = True,
        **kwargs
    )
    millrace_cc_test(
        name = name + "_corpus_test",
        srcs = ["corpus_test.cc"],
        copts = ["-DMILLRACE_CORPUS=\\\"" + native.package_name() + "/corpus/" + name + "\\\""],
        data = native.glob(["corpus/" + name + "/*"]),
        deps = [
            ":" + name + "_target",
            "//engine/base:file",
        ],
    )
    millrace_cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        srcs = ["json_mutator.cc"] if is_json else [],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_target"] + ([
            "//engine/base:json_file",
            "@system//:absl_strings",
            "@system//:nlohmann_json",
        ] if is_json else []),
    )
