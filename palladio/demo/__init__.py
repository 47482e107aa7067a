"""`python -m palladio.demo`: a mixture of experts learns handwritten digits through Palladio's grouped matmul.

Read `model` to learn how a mixture of experts works, `kernels` for the three grouped products that it stands on, then
`train`, and last `report` and `plot`, which show what happened. `data` brings the digits.
"""
