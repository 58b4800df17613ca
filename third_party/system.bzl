"""The libraries that the system provides, as Bazel targets: @system//:grpc, @system//:absl_status...

Each is found through pkg-config, or by its header where a library ships no pkg-config file. Where a
library is missing, what uses it (and nothing else) fails to build, with a sentence that names the
library and the package to install.
"""

# Target: the pkg-config modules behind it and the Debian and Ubuntu package that brings them.
_PKG_CONFIG = {
    "benchmark": (["benchmark"], "libbenchmark-dev"),
    "cli11": (["CLI11"], "libcli11-dev"),
    "grpc": (["grpc++", "grpc", "protobuf"], "libgrpc++-dev"),
    "gtest": (["gmock", "gtest"], "libgmock-dev"),
    "gtest_main": (["gmock", "gtest_main"], "libgtest-dev"),
    "hwy": (["libhwy"], "libhwy-dev"),
    "icu_uc": (["icu-uc"], "libicu-dev"),
    "nlohmann_json": (["nlohmann_json"], "nlohmann-json3-dev"),
    "openssl": (["libcrypto"], "libssl-dev"),
    "pcre2": (["libpcre2-8"], "libpcre2-dev"),
    "prometheus_cpp": (["prometheus-cpp-pull", "prometheus-cpp-core"], "prometheus-cpp-dev"),
    "protobuf": (["protobuf"], "libprotobuf-dev"),
    "spdlog": (["spdlog"], "libspdlog-dev"),
    "sqlite3": (["sqlite3"], "libsqlite3-dev"),
    "yaml_cpp": (["yaml-cpp"], "libyaml-cpp-dev"),
}

# Target: the header that shows it is there, its link options, and its package.
_PLAIN = {
    "civetweb": ("civetweb.h", ["-lcivetweb"], "libcivetweb-dev"),
    "dnnl": ("dnnl.hpp", ["-ldnnl"], "libdnnl-dev"),
    "grpc_reflection": ("grpcpp/ext/proto_server_reflection_plugin.h", ["-lgrpc++_reflection"], "libgrpc++-dev"),
}

_PLAIN_DEPS = {
    "grpc_reflection": [":grpc"],
}

# Programs that generate code, and their packages.
_TOOLS = {
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
    "protoc": "protobuf-compiler",
}

def _complaint(what, package):
    return "%s is missing; install it with: apt-get install %s (or run deploy/install_deps.sh)" % (what, package)

def _missing_library(name, package):
    """A target that fails as soon as something is compiled against it."""
    return """
genrule(
    name = "{name}_missing",
    outs = ["{name}_missing.h"],
    cmd = "echo >&2; echo 'ERROR: {complaint}' >&2; false",
)

cc_library(
    name = "{name}",
    hdrs = [":{name}_missing"],
)
""".format(name = name, complaint = _complaint("The library " + name, package))

def _pkg_config(ctx, modules):
    """Defines and link options of pkg-config modules, or None where one of them is missing."""
    result = ctx.execute(["pkg-config", "--cflags", "--libs"] + modules)
    if result.return_code != 0:
        return None
    defines, linkopts = [], []
    for flag in result.stdout.split(" "):
        flag = flag.strip()
        if flag.startswith("-D") and flag != "-DNOMINMAX":
            defines.append(flag[2:])
        elif flag.startswith("-l") or flag.startswith("-L") or flag.startswith("-Wl,") or flag == "-pthread":
            linkopts.append(flag)
        elif flag.startswith("-I") and flag[2:] not in ["/usr/include", "/usr/local/include"]:
            fail("The library %s has its headers in %s, where the compiler does not look" % (modules[0], flag[2:]))
    return defines, _without_repeats(linkopts)

def _without_repeats(flags):
    """Drops what pkg-config says many times over; the last place of a library is the one that counts."""
    kept = []
    seen = {}
    for flag in reversed(flags):
        if flag.startswith("-l"):
            if flag in seen:
                continue
            seen[flag] = True
        kept.append(flag)
    return [flag for flag in reversed(kept)]

def _library(name, defines = [], linkopts = [], deps = []):
    return """
cc_library(
    name = %r,
    defines = %r,
    linkopts = %r,
    deps = %r,
)
""" % (name, defines, linkopts, deps)

def _pkg_config_library(ctx, name, modules, package):
    found = _pkg_config(ctx, modules)
    if not found:
        return _missing_library(name, package)
    return _library(name, found[0], found[1])

def _absl_modules(ctx):
    result = ctx.execute(["pkg-config", "--list-all"])
    names = [line.split(" ")[0] for line in result.stdout.split("\n")]
    return sorted([name for name in names if name.startswith("absl_")])

def _tool(ctx, name, package):
    """A program under its own name, or a stand-in that says what to install."""
    program = ctx.which(name)
    if program:
        ctx.symlink(program, name)
    else:
        ctx.file(name, "#!/bin/sh\necho 'ERROR: %s' >&2\nexit 1\n" % _complaint("The program " + name, package))

def _installed_packages_impl(ctx):
    status = "/var/lib/dpkg/status"
    if ctx.path(status).exists:
        ctx.symlink(status, "status")
    else:
        ctx.file("status", "")
    ctx.file("BUILD", 'exports_files(["status"])\n')

_installed_packages = repository_rule(
    implementation = _installed_packages_impl,
    doc = "The list of the packages that are installed, where there is one.",
    local = True,
)

def _system_libraries_impl(ctx):
    # Bazel does not look at the system again while its server lives, `local` or not. A file that changes
    # makes it: so a package that is installed is found by the next build.
    ctx.path(Label("@installed_packages//:status"))

    if not ctx.which("pkg-config"):
        fail(_complaint("The program pkg-config", "pkg-config"))

    build = ['package(default_visibility = ["//visibility:public"])\n']
    for name, (modules, package) in _PKG_CONFIG.items():
        build.append(_pkg_config_library(ctx, name, modules, package))

    # Abseil has a module for each of its libraries; without any, most of our code could name none.
    absl = _absl_modules(ctx)
    if not absl:
        fail(_complaint("The library Abseil", "libabsl-dev"))
    for name in absl:
        build.append(_pkg_config_library(ctx, name, [name], "libabsl-dev"))

    for name, (header, linkopts, package) in _PLAIN.items():
        if ctx.path("/usr/include/" + header).exists:
            build.append(_library(name, [], linkopts, _PLAIN_DEPS.get(name, [])))
        else:
            build.append(_missing_library(name, package))

    for name, package in _TOOLS.items():
        _tool(ctx, name, package)
    build.append("\nexports_files(%r)\n" % sorted(_TOOLS.keys()))
    ctx.file("BUILD", "".join(build))

_system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    doc = "Makes @system from what pkg-config finds.",
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)

def system_libraries(name):
    _installed_packages(name = "installed_packages")
    _system_libraries(name = name)
