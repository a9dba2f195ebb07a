// Package compress makes gradients small before they are pushed: it has codecs, error feedback, and
// a lossless stage for the codecs' payloads. Begin with [Parse], which makes a codec from its name,
// such as "int8" or "topk:0.01+s2", and with [Feedback], which a worker uses.
//
// A [Codec] encodes the chunks of a gradient one by one. Its payloads have the formats of
// [kernels.Encoding], which the step of a server reads in place.
//
// # Error feedback
//
// What a lossy codec leaves out is not lost: a worker adds this residual to its next gradient
// (Seide et al. 2014; Karimireddy et al. 2019). A gradient may be thrown away after it was encoded,
// so [Feedback] keeps the residual in two phases. Encoding takes the residual and writes a
// candidate for the next one. If the push is counted, Feedback adopts the candidate; if the push is
// dropped, Feedback restores what was taken. So what one dropped push had taken is sent with a
// later one, and no part of a counted gradient is lost.
//
// # Lossless stage
//
// The bytes of a whole frame can be packed once more: see [Codec].Pack. s2 removes runs of zeros at
// the speed of memory. Huffman coding of the exponents makes dense floats a sixth to a third
// smaller. It is slow and pays only on links below about 2 Gbit/s. [Unpack] trusts nothing that it
// reads.
package compress
