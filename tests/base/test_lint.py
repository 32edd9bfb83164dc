"""tests/lint finds each kind of offence in a small tree, and nothing in a clean one."""
import os
import shutil
import subprocess
import sys
import tempfile

LINT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lint")
CMAKE = """zr_module(base 0 DIR runtime/base)
zr_module(ifc  1 DIR runtime/hal DEPENDS base)
zr_module(cpu  2 DIR runtime/hal/cpu DEPENDS ifc)
zr_module(plan 3 DIR runtime/plan DEPENDS ifc)
zr_module(exec 5 DIR runtime/exec
  DEPENDS ifc)
"""
CLEAN = {
    "CMakeLists.txt": CMAKE,
    ".clang-format": "BasedOnStyle: Google\nColumnLimit: 100\n",
    "runtime/README.md": "x\n",
    "runtime/hal/README.md": "x\n",
    "runtime/base/a.h": "#ifndef A_H\n#define A_H\nint a(int x);\n#endif\n",
    "runtime/base/alloc.c": "void *get(void) { return malloc(1); }\n",
    "runtime/plan/p.h": "#ifndef P_H\n#define P_H\ntypedef struct {\n  int x;\n} p_t;\n#endif\n",
    "runtime/plan/p.c": '#include "runtime/base/a.h"\n/* exit(1), "strcpy(" */\n'
                        'const char *p(void) { return "exit(1) /* "; }\n',
}
LONG_BODY = "int f(int x) {\n" + "  x++;\n" * 59 + "  return x;\n}\n"
CASES = [
    ("floor broken", "runtime/base/b.c", '#include "runtime/plan/p.h"\n'),
    ("does not declare plan", "runtime/exec/e.c", '#include "runtime/plan/p.h"\n'),
    ("is not there", "runtime/plan/q.c", '#include "p.h"\n'),
    ("in no zr_module", "runtime/new/q.c", "int x;\n"),
    ("<mpi.h> is for", "runtime/plan/q.c", "#include <mpi.h>\n"),
    ("outside the backend folders", "runtime/plan/q.c", "#if ZR_WITH_MPI\n#endif\n"),
    ("601 lines", "runtime/plan/q.c", "int x;\n" * 601),
    ("601 lines", "bench/q.c", "int x;\n" * 601),
    ("101 columns", "runtime/plan/q.c", "/* " + "x" * 95 + " */\n"),
    ("function f has 62 lines", "runtime/plan/q.c", LONG_BODY),
    ("exit() is banned", "runtime/plan/q.c", "void f(void) { exit(1); }\n"),
    ("abort() is banned", "kernels/q.c", "void f(void) { abort(); }\n"),
    ("strcpy() is banned", "tests/q.c", "void f(char *x) { strcpy(x, x); }\n"),
    ("malloc() is banned", "runtime/base/b.c", "void *f(void) { return malloc(1); }\n"),
    ("free() is banned", "runtime/plan/q.c", "void f(void *x) { free(x); }\n"),
    ("printf() is banned", "runtime/plan/q.c", "void f(void) { printf(0); }\n"),
    ("goes through zr_log", "runtime/plan/q.c", "void f(void) { fprintf(stderr, 0); }\n"),
    ("TO" "DO", "runtime/plan/q.c", "/* TO" + "DO */\n"),
    ("does not compile alone", "runtime/plan/q.h", "size_t f(void);\n"),
    ("no README.md", "bench/deep/er/q.c", "int x;\n"),
    ("not as clang-format", "runtime/plan/q.c", "int  x ;\n"),
    ("", "runtime/plan/q.c", "void f(void *x) { free(x); } /* lint: allow(free): jansson's */\n"),
    ("", "runtime/plan/q.c", "void f(t *x) { x->abort(x); }\n"),
    ("", "runtime/plan/q.c", "static const int t[] = {\n" + "    (1),  //\n" * 80 + "};\n"),
    ("", "runtime/hal/cpu/q.c", "#if ZR_WITH_MPI\n#endif\n"),
    ("", "runtime/plan/q.inc.h", "size_t f(void);\n"),
]


def run(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        os.makedirs(os.path.join(root, "tests"), exist_ok=True)
        shutil.copy(LINT, os.path.join(root, "tests", "lint"))
        done = subprocess.run([sys.executable, os.path.join(root, "tests", "lint")], text=True,
                              capture_output=True, check=False)
        return done.returncode, done.stdout


def main():
    failures = 0
    for wanted, path, text in [("", "runtime/plan/p2.c", "int x;\n")] + CASES:
        if "clang-format" in wanted and not shutil.which("clang-format"):
            continue
        files = dict(CLEAN, **{path: text})
        files.setdefault(path.split("/")[0] + "/README.md", "x\n")
        files.setdefault("tests/README.md", "x\n")
        code, output = run(files)
        is_right = wanted in output and code == 1 if wanted else code == 0 and not output
        if not is_right:
            failures += 1
            print(f"wanted '{wanted}' for {path}, got {code}:\n{output}")
    print(f"{len(CASES) + 1} cases, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
