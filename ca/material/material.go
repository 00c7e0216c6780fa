// Package material reads and makes the keys and certificates of a CA.
//
// It turns files into a [ca.Material], which [ca.NewAuthority] then puts to the
// proof, and makes a root and an issuer where there are none. It says which file
// and which line is wrong, and never shows what is in a key file. Files reach it
// through functions: it opens nothing itself.
package material
