// All kernels, each file in a namespace of its own. Otherwise the names of their constants would collide.
#include "../kdev.cuh"
#include "../lanes.cuh"
#include "../operand.cuh"
#include "../chosen.cuh"
#include "../order.cuh"

#define UNIT(name) namespace name {
UNIT(of_step)
#include "../step.cu"
}
UNIT(of_decode)
#include "../decode.cu"
}
UNIT(of_sparse)
#include "../sparse.cu"
}
UNIT(of_norm)
#include "../norm.cu"
}
UNIT(of_finite)
#include "../finite.cu"
}
UNIT(of_rows)
#include "../rows.cu"
}
UNIT(of_encode)
#include "../encode.cu"
}
UNIT(of_select)
#include "../select.cu"
}
UNIT(of_named)
#include "../named.cu"
}
UNIT(of_lowrank)
#include "../lowrank.cu"
}
UNIT(of_gemm)
#include "../gemm.cu"
}
UNIT(of_layer)
#include "../layer.cu"
}
UNIT(of_sequence)
#include "../sequence.cu"
}
